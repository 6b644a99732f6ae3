"""Windows, softcaps, sinks, ALiBi and narrow dtypes are read as vLLM computes them."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import regard
from tests.vllm.engines import TOLERANCE, engine, generate, largest_difference, watched

pytestmark = pytest.mark.slow

Start = Callable[..., tuple[Any, Any]]

_SIZES = {
    "hidden_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 32,
    "intermediate_size": 64,
    "vocab_size": 97,
    "max_position_embeddings": 512,
}

_PROMPTS = [[(7 * i + seed) % 97 for i in range(40 + 11 * seed)] for seed in range(6)]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts an engine with a small model, and makes that model."""
    engines: list[Any] = []

    def start_engine(config: Any, *, factor: float = 8.0, **options: Any) -> tuple[Any, Any]:
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        # Large enough that attention isn't uniform.
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.data *= factor
        model.save_pretrained(tmp_path)
        given = {"max_num_batched_tokens": 48, "max_num_seqs": 4}
        engines.append(engine(tmp_path, **{**given, **options}))
        return engines[-1], model.eval()

    yield start_engine
    from vllm.distributed import cleanup_dist_env_and_memory

    engines.clear()
    gc.collect()
    cleanup_dist_env_and_memory()


def _compare(llm: Any, model: Any) -> Any:
    generate(llm, _PROMPTS[:1])
    seen, outputs = watched(llm, _PROMPTS)
    seen.verify()
    for output in outputs:
        request = seen.requests[output.request_id]
        assert largest_difference(request, model, output) < TOLERANCE
    return seen.requests[outputs[0].request_id]


def test_sliding_windows(start: Start) -> None:
    config = transformers.MistralConfig(**_SIZES, sliding_window=24)
    request = _compare(*start(config))
    assert request[0].pattern == regard.window(before=23)


def test_softcaps_and_windows_of_some_layers(start: Start) -> None:
    config = transformers.Gemma2Config(
        **_SIZES, sliding_window=24, attn_logit_softcapping=5.0, query_pre_attn_scalar=32
    )
    request = _compare(*start(config))
    assert [str(call.pattern) for call in request] == ["window(before=23)", "causal()"]
    assert request[0].scores.call.bias == regard.positions.softcap(5.0)


def test_linear_biases(start: Start) -> None:
    config = transformers.BloomConfig(hidden_size=96, n_layer=2, n_head=3, vocab_size=97)
    request = _compare(*start(config, factor=3.0))
    assert request[0].scores.call.bias is not None


def test_narrow_dtypes_are_compared_with_the_output(start: Start) -> None:
    llm, _ = start(transformers.LlamaConfig(**_SIZES), dtype="bfloat16")
    generate(llm, _PROMPTS[:3])
    seen, outputs = watched(llm, _PROMPTS)
    seen.verify()
    assert any(output.num_cached_tokens for output in outputs)
    assert seen.requests[outputs[0].request_id][0].dtype == torch.bfloat16


def test_requests_that_were_preempted(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    llm, model = start(
        transformers.LlamaConfig(**_SIZES), num_gpu_blocks_override=8, max_model_len=192
    )
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    preempted: list[str] = []
    original = scheduler._preempt_request

    def preempt(request: Any, *arguments: Any, **more: Any) -> None:
        preempted.append(request.request_id)
        original(request, *arguments, **more)

    monkeypatch.setattr(scheduler, "_preempt_request", preempt)
    with regard.watch(llm) as seen:
        outputs = generate(llm, _PROMPTS, 60, skip_reading_prefix_cache=True)
    assert preempted
    seen.verify()
    for output in outputs:
        request = seen.requests[output.request_id]
        assert request[0].queries == request[0].keys
        assert largest_difference(request, model, output) < TOLERANCE
