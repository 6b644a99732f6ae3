"""A vLLM engine: its model runner, and the settings that can't be watched."""

import re
from importlib import import_module
from typing import Any, Protocol, TypeGuard, runtime_checkable

from regard.distributed.ranks import Ranks


@runtime_checkable
class Engine(Protocol):
    """A `vllm.LLM`."""

    llm_engine: Any


def is_engine(model: object) -> TypeGuard[Engine]:
    """Return whether a model is a `vllm.LLM`, without importing vLLM."""
    return any(
        kind.__name__ == "LLM" and kind.__module__.partition(".")[0] == "vllm"
        for kind in type(model).__mro__
    )


def runner_of(llm: Engine) -> Any:
    """Return the model runner of an engine, an object of vLLM.

    Raises:
        ValueError: the engine runs in another process, or in a way that can't be watched.
    """
    executor = getattr(llm.llm_engine, "model_executor", None)
    worker = getattr(getattr(executor, "driver_worker", None), "worker", None)
    if worker is None:
        raise ValueError(
            "llm runs in another process: set VLLM_ENABLE_V1_MULTIPROCESSING=0 in the environment "
            "before it is made"
        )
    check_runner(worker.model_runner)
    return worker.model_runner


def check_runner(runner: Any, *, tensor_parallel: bool = False) -> None:
    """Raise ValueError if a model runner works in a way that can't be watched.

    Args:
        runner: the model runner, an object of vLLM.
        tensor_parallel: whether several workers may share the heads.
    """
    config = runner.vllm_config
    parallel, model = config.parallel_config, config.model_config
    most_workers = parallel.tensor_parallel_size if tensor_parallel else 1

    obstacles = {
        "it compiles the model and may replay it as a CUDA graph, unseen: make it with "
        "enforce_eager=True": not model.enforce_eager,
        "its model runner is version 2: set VLLM_USE_V2_MODEL_RUNNER=0 in the environment": (
            getattr(config, "use_v2_model_runner", False)
        ),
        f"it has {parallel.world_size_across_dp} workers, and only {most_workers} can be watched": (
            parallel.world_size_across_dp > most_workers
        ),
        "it splits batches (enable_dbo)": getattr(parallel, "enable_dbo", False),
        "it decodes speculatively, so that tokens which it rejects are computed too": (
            config.speculative_config is not None
        ),
        "it gets keys from other engines (kv_transfer_config)": (
            config.kv_transfer_config is not None
        ),
        f"it is made for {model.runner_type}, not to generate": model.runner_type != "generate",
        "its model is multi-modal": model.is_multimodal_model,
        "its model is an encoder–decoder": model.is_encoder_decoder,
    }

    for obstacle, present in obstacles.items():
        if present:
            raise ValueError(f"llm can't be watched: {obstacle}")


def tensor_parallel_ranks(runner: Any) -> Ranks:
    """Return the processes that share the heads of a model."""
    if runner.vllm_config.parallel_config.tensor_parallel_size == 1:
        return Ranks()
    return Ranks(import_module("vllm.distributed").get_tp_group().cpu_group)


def request_name(llm: Engine, request: str) -> str:
    """Return the id of a request in `llm.generate`, from its id in the engine.

    Several samples of one prompt have their numbers in front: "0_7", "1_7".
    """
    state = llm.llm_engine.output_processor.request_states.get(request)
    if state is None:
        return plain_name(request)
    if state.parent_req is None:
        return state.external_req_id
    return f"{state.request_index}_{state.external_req_id}"


def plain_name(request: str) -> str:
    """Return the id of a request without the random ending that the engine adds.

    >>> plain_name("7-9f03c1aa")
    '7'
    """
    return re.sub(r"-[0-9a-f]{8}$", "", request)
