"""Requests of an engine, batched, cached and in chunks, have the weights that transformers has."""

import random
from typing import Any

import pytest
import torch

import regard
from tests.vllm.engines import TOLERANCE, fed, generate, generated, largest_difference, watched

pytestmark = pytest.mark.slow


def _tokens(count: int, seed: int) -> list[int]:
    chosen = random.Random(seed)
    return [chosen.randrange(1000, 40_000) for _ in range(count)]


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Return 32 prompts of 3 to 195 tokens; most begin with one of two long texts."""
    shared = [_tokens(70, 1), _tokens(130, 2)]
    return [
        (shared[number % 2] if number % 4 < 3 else []) + _tokens(3 + 2 * number, 100 + number)
        for number in range(32)
    ]


def test_every_weight_of_every_request_is_that_of_transformers(
    smollm2: Any, prompts: list[list[int]], eager: Any
) -> None:
    bare = generate(smollm2, prompts)
    smollm2.reset_prefix_cache()
    seen, outputs = watched(smollm2, prompts)
    assert generated(outputs) == generated(bare)
    assert sorted(seen.requests, key=int) == [output.request_id for output in outputs]
    seen.verify()
    # Prefixes were found in the cache, and prompts were longer than a step.
    assert sum(output.num_cached_tokens > 0 for output in outputs) > 10
    for output in outputs:
        request = seen.requests[output.request_id]
        assert largest_difference(request, eager, output) < TOLERANCE


def test_prefixes_from_before_the_block_are_read_from_the_cache(smollm2: Any, eager: Any) -> None:
    prompt = _tokens(100, 3)
    generate(smollm2, [prompt])
    seen, (output,) = watched(smollm2, [prompt])
    assert output.num_cached_tokens == 96
    assert largest_difference(seen.requests[output.request_id], eager, output) < TOLERANCE


def test_a_request_is_chosen_by_its_id(smollm2: Any, prompts: list[list[int]], eager: Any) -> None:
    first = int(generate(smollm2, [prompts[0]], 1)[0].request_id) + 1
    seen, outputs = watched(smollm2, prompts, requests=lambda name: int(name) == first + 6)
    assert list(seen.requests) == [str(first + 6)]
    output = outputs[6]
    assert output.num_cached_tokens
    assert largest_difference(seen.requests[output.request_id], eager, output) < TOLERANCE


def test_layers_are_chosen_as_in_a_model(smollm2: Any) -> None:
    seen, (output,) = watched(smollm2, [_tokens(20, 4)], where=[3, "model.layers.7.self_attn"])
    calls = seen.requests[output.request_id]
    assert [call.layer for call in calls] == ["3", "7"]
    assert calls["model.layers.7.self_attn.attn"] is calls[1]


def test_samples_of_one_prompt_have_their_numbers_in_front(smollm2: Any) -> None:
    with regard.watch(smollm2, where=0) as seen:
        (output,) = generate(smollm2, [_tokens(20, 5)], 4, n=2, temperature=1.0)
    assert set(seen.requests) == {f"0_{output.request_id}", f"1_{output.request_id}"}


def test_sinks(smollm2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = smollm2.llm_engine.model_executor.driver_worker.worker.model_runner.get_model()
    sinks = torch.linspace(-2, 6, 9)
    monkeypatch.setattr(model.model.layers[1].self_attn.attn.impl, "sinks", sinks)
    seen, (output,) = watched(smollm2, [_tokens(70, 11)], where=[0, 1])
    seen.verify()
    without, with_sinks = (
        call.matrix.dense().sum(dim=-1) for call in seen.requests[output.request_id]
    )
    torch.testing.assert_close(without, torch.ones_like(without))
    assert float(with_sinks.max()) < 1


def test_reductions_are_computed_when_a_request_ends(smollm2: Any) -> None:
    from regard.matrix import Entropy

    prompt = _tokens(50, 6)
    seen, (output,) = watched(smollm2, [prompt], keep=[Entropy()], where=5)
    smollm2.reset_prefix_cache()
    whole, (again,) = watched(smollm2, [prompt], where=5)
    call = seen.requests[output.request_id][0]
    (expected,) = whole.requests[again.request_id][0].matrix.summarize(Entropy())
    assert call.view is None
    assert torch.equal(call.results[0].nats, expected.nats)


def test_values_are_kept_if_wanted(smollm2: Any) -> None:
    seen, (output,) = watched(smollm2, [_tokens(40, 7)], where=2, values=True, check=False)
    call = seen.requests[output.request_id][0]
    assert call.value.shape == (1, 3, 55, 64)
    assert call.check.passed is None
    plain, (output,) = watched(smollm2, [_tokens(40, 8)], where=2)
    with pytest.raises(ValueError, match="has no values"):
        _ = plain.requests[output.request_id][0].value


def test_a_request_is_shown_recorded_and_opened(smollm2: Any, tmp_path: Any) -> None:
    prompt = _tokens(100, 9)
    generate(smollm2, [prompt])
    seen, (output,) = watched(smollm2, [prompt], where=[0, 1])
    request = seen.requests[output.request_id]
    assert request[0].queries < request[0].keys
    tokens = [f"t{token}" for token in fed(output)]
    regard.page(request, tokens).save(tmp_path / "request.html")
    recording = regard.save(request, tmp_path / "request.regard", tokens=tokens)
    assert recording.texts[1].tokens == tokens[-request[0].queries :]
    for stored, call in zip(recording, request, strict=True):
        torch.testing.assert_close(stored.matrix.dense(), call.matrix.dense())


def test_it_prints_a_line_for_each_request(smollm2: Any) -> None:
    seen, (output,) = watched(smollm2, [_tokens(20, 10)], where=[0, 1])
    first, line = repr(seen).split("\n")
    assert first == "1 request"
    assert line.startswith(f"{output.request_id}: 2 calls, 35 × 35, check ")
    with pytest.raises(KeyError, match="there is no finished request 'x'"):
        _ = seen.requests["x"]
