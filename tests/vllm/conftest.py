"""One real engine for all tests: vLLM with SmolLM2 on a CPU."""

from collections.abc import Iterator
from typing import Any

import pytest

import materials
from tests.vllm.engines import engine


@pytest.fixture(scope="session", autouse=True)
def _in_this_process() -> Iterator[None]:
    """Let engines run in this process, where they can be watched, and say little."""
    pytest.importorskip("vllm", reason="vLLM has an environment of its own: .ci/vllm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        patch.setenv("VLLM_LOGGING_LEVEL", "ERROR")
        # Workers that share a NUMA node; vLLM reads it once, before its first engine.
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        yield


@pytest.fixture(scope="session")
def smollm2() -> Any:
    """Return an engine with SmolLM2 that computes 96 tokens a step, and so prompts in chunks."""
    return engine(
        materials.smollm2(),
        max_num_batched_tokens=96,
        max_num_seqs=16,
        worker_extension_cls="regard.recording.vllm_worker.RecordingWorker",
    )


@pytest.fixture(scope="session")
def eager() -> Any:
    """Return SmolLM2 as transformers computes it."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(materials.smollm2(), attn_implementation="eager")
    return model.eval()


@pytest.fixture(autouse=True)
def _empty_prefix_cache(request: pytest.FixtureRequest) -> None:
    """Begin each test with an empty prefix cache."""
    if "smollm2" in request.fixturenames:
        request.getfixturevalue("smollm2").reset_prefix_cache()
