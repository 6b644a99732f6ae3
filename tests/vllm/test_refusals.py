"""What can't be read exactly is refused in one line, and what was misread is noticed."""

from typing import Any

import pytest
import torch

import regard
from regard.vllm.cache import CacheReader
from regard.vllm.captured import Captured
from tests.vllm.engines import generate, generated, watched

pytestmark = pytest.mark.slow

_PROMPTS = [list(range(1000, 1050)), list(range(2000, 2011))]


def _runner(llm: Any) -> Any:
    return llm.llm_engine.model_executor.driver_worker.worker.model_runner


def _attention(llm: Any, layer: int = 0) -> Any:
    return _runner(llm).get_model().model.layers[layer].self_attn.attn


def _refused(llm: Any, message: str, **options: Any) -> None:
    with pytest.raises(ValueError, match=message), regard.watch(llm, **options):
        pass


@pytest.mark.parametrize(
    ("part", "name", "value", "message"),
    [
        ("model_config", "enforce_eager", False, "make it with enforce_eager=True$"),
        ("model_config", "runner_type", "pooling", "made for pooling, not to generate$"),
        ("parallel_config", "enable_dbo", True, r"splits batches \(enable_dbo\)$"),
        ("", "speculative_config", object(), "decodes speculatively"),
        ("", "kv_transfer_config", object(), "gets keys from other engines"),
    ],
)
def test_settings(
    smollm2: Any,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    name: str,
    value: Any,
    message: str,
) -> None:
    config = _runner(smollm2).vllm_config
    monkeypatch.setattr(getattr(config, part) if part else config, name, value)
    _refused(smollm2, f"^llm can't be watched: it.*{message}")


def test_another_process(smollm2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(smollm2.llm_engine, "model_executor")
    _refused(smollm2, "^llm runs in another process: set VLLM_ENABLE_V1_MULTIPROCESSING=0")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("attn_type", "encoder_only", "has attention of type encoder_only"),
        ("kv_sharing_target_layer_name", "model.layers.0", "shares the keys of model.layers.0"),
        ("dtype", torch.bfloat16, "rounds its keys: its cache is torch.float32"),
        ("head_size_v", 32, "has values of another size"),
        ("use_alibi_sqrt", True, "has a bias by the root of the distance"),
        ("use_mm_prefix", True, "attends to images in both directions"),
        ("__class__", torch.nn.Module, "is Module, no plain attention"),
    ],
)
def test_layers(
    smollm2: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: Any, message: str
) -> None:
    monkeypatch.setattr(_attention(smollm2, 4), name, value)
    _refused(smollm2, rf"^llm can't be watched: model\.layers\.4\.self_attn\.attn {message}")
    # Other layers can be watched all the same.
    with pytest.raises(RuntimeError, match="no request was seen"), regard.watch(smollm2, where=3):
        pass


def test_backends_that_keep_keys_otherwise(smollm2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = _attention(smollm2)
    write = layer.impl.do_kv_cache_update

    def rounded(layer: Any, key: Any, value: Any, cache: Any, slots: Any) -> None:
        write(layer, key.clamp(max=100), value, cache, slots)

    monkeypatch.setattr(layer.impl, "do_kv_cache_update", rounded)
    with pytest.raises(ValueError, match="is not understood"):
        CacheReader(layer, 16)
    monkeypatch.undo()
    smollm2.reset_prefix_cache()
    prompts = [list(range(200, 240)), list(range(300, 340))]
    generate(smollm2, prompts[:1])
    # Only the first needs its keys from the cache.
    monkeypatch.setattr("regard.vllm.cache._written", lambda *_: torch.zeros(1, dtype=torch.int64))
    seen, outputs = watched(smollm2, prompts)
    first, second = (seen.requests[output.request_id] for output in outputs)
    second.verify()
    message = "the order in which CPU_ATTN keeps the keys of .* is not understood"
    with pytest.raises(RuntimeError, match=message):
        first.verify()


def test_arguments(smollm2: Any) -> None:
    with pytest.raises(ValueError, match=r"^effects=True needs gradients, and vLLM computes none$"):
        regard.watch(smollm2, effects=True)
    with pytest.raises(ValueError, match=r'^keep must be "tensors", "copies" or'):
        regard.watch(smollm2, keep="all")
    _refused(smollm2, "^where must match attention of the engine's model, got 77$", where=77)
    with (
        pytest.raises(RuntimeError, match=r"^no request was seen: call llm\.generate inside"),
        regard.watch(smollm2),
    ):
        pass


def test_what_was_misread_is_noticed(smollm2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with regard.watch(smollm2, where=[0, 1]) as seen:
        # The engine computes something else than the layer said when the block began.
        monkeypatch.setattr(_attention(smollm2, 1).impl, "scale", 0.2)
        outputs = generate(smollm2, _PROMPTS)
    for output in outputs:
        request = seen.requests[output.request_id]
        assert [call.check.passed for call in request] == [True, False]
    with pytest.raises(RuntimeError, match=r"^request \d+: call 1 .* differs from A @ V by"):
        seen.verify()


def test_a_wrong_row_of_a_late_step_is_noticed(
    smollm2: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    implementation = _attention(smollm2).impl
    original, num_steps = implementation.forward, 0

    def forward(*arguments: Any, **more: Any) -> Any:
        nonlocal num_steps
        num_steps += 1
        result = original(*arguments, **more)
        if num_steps == 12:
            arguments[6][-1] += 0.5
        return result

    monkeypatch.setattr(implementation, "forward", forward)
    seen, outputs = watched(smollm2, _PROMPTS, where=0)
    passed = [seen.requests[output.request_id][0].check.passed for output in outputs]
    assert sorted(passed) == [False, True]


def test_an_engine_does_not_fail_when_it_is_not_understood(
    smollm2: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = generate(smollm2, _PROMPTS)
    smollm2.reset_prefix_cache()
    monkeypatch.setattr(Captured, "add", None)
    seen, outputs = watched(smollm2, _PROMPTS, where=0)
    assert generated(outputs) == generated(bare)
    with pytest.raises(RuntimeError, match="was not understood: 'NoneType' object is not callable"):
        seen.verify()


def test_errors_of_the_rule_for_requests_come_after_the_block(smollm2: Any) -> None:
    with pytest.raises(ZeroDivisionError), regard.watch(smollm2, requests=lambda name: 1 // 0):
        outputs = generate(smollm2, _PROMPTS, 3)
    assert [len(tokens) for tokens in generated(outputs)] == [3, 3]


def test_nothing_is_left_behind_and_blocks_may_be_nested(smollm2: Any) -> None:
    implementation, runner = _attention(smollm2).impl, _runner(smollm2)
    with regard.watch(smollm2, where=0) as outer:
        with regard.watch(smollm2, where=[0, 1]) as inner:
            first = generate(smollm2, _PROMPTS, 2)
        second = generate(smollm2, _PROMPTS, 2)
    assert "forward" not in vars(implementation)
    assert "execute_model" not in vars(runner)
    names = [output.request_id for output in (*first, *second)]
    assert sorted(outer.requests, key=int) == names
    assert sorted(inner.requests, key=int) == names[:2]
