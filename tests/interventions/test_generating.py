"""Texts that are generated with a cache: token for token as the oracle writes them without one."""

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import regard
from regard.patterns import pairs, window
from tests.capture.generating import PROMPT, WRITERS, generate, padded, translator, writer
from tests.capture.zoo import tokens
from tests.interventions.oracle import Oracle, with_oracle

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")

LAYER = {"GPT-2": "transformer.h.1.attn"}
# Positions below, inside and behind the prompt, for queries that are there and some to come.
CHOSEN = pairs(queries=slice(8, 15), keys=[0, 3, 9, 12])
FAR = ~window(before=4)


def chosen(batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
    keys = (key == 0) | (key == 3) | (key == 9) | (key == 12)
    return (query >= 8) & (query < 15) & keys


def far(batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return (query - key > 4) | (key > query)


@pytest.mark.parametrize("side", ["none", "left"])
@pytest.mark.parametrize("name", WRITERS)
def test_writers(name: str, side: str) -> None:
    prompt, there = tokens(length=PROMPT), padded(side, PROMPT)
    layer = LAYER.get(name, "model.layers.1.self_attn")
    model, eager = writer(name), with_oracle(writer(name, "eager"))
    plain = scores(model, prompt, there)
    for pattern, forbids in ((CHOSEN, chosen), (FAR, far)):
        with Oracle(eager, forbids, [layer], ablated=[(layer, 1)]).running():
            expected = scores(eager, prompt, there, use_cache=False)
        with regard.knock_out(model, pattern, layers=[1]), regard.ablate(model, [(1, 1)]):
            found = scores(model, prompt, there)
        same(found, expected)
        assert (found.logits[0] - plain.logits[0]).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["Llama", "Mistral"])
def test_a_cache_with_room(name: str) -> None:
    prompt, there = tokens(length=PROMPT), padded("none", PROMPT)
    layer = "model.layers.0.self_attn"
    model, eager = writer(name), with_oracle(writer(name, "eager"))
    with Oracle(eager, chosen, [layer]).running():
        expected = scores(eager, prompt, there, use_cache=False)
    with regard.knock_out(model, CHOSEN, layers=[0]):
        found = scores(model, prompt, there, cache_implementation="static")
    same(found, expected)


def test_beams() -> None:
    prompt, there = tokens(length=PROMPT), padded("left", PROMPT)
    model, eager = writer("Llama"), with_oracle(writer("Llama", "eager"))
    layers = [f"model.layers.{number}.self_attn" for number in range(2)]
    with Oracle(eager, chosen, layers).running():
        expected = generate(eager, prompt, there, num_beams=3, use_cache=False)
    with regard.knock_out(model, CHOSEN):
        found = generate(model, prompt, there, num_beams=3)
    assert torch.equal(found, expected)
    assert not torch.equal(found, generate(model, prompt, there, num_beams=3))


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("BART", "model.decoder.layers.0.encoder_attn"),
        ("T5", "decoder.block.0.layer.1.EncDecAttention"),
        ("BART", "model.decoder.layers.1.self_attn"),
    ],
)
def test_translators(name: str, layer: str) -> None:
    prompt, there = tokens(length=PROMPT), padded("none", PROMPT)
    model, eager = translator(name), with_oracle(translator(name))
    pattern = pairs(queries=[2, 3, 4], keys=slice(1, 6))
    with Oracle(eager, _middle, [layer]).running():
        expected = scores(eager, prompt, there, use_cache=False)
    with regard.knock_out(model, pattern, layers=[layer]):
        found = scores(model, prompt, there)
    same(found, expected)


def _middle(batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return (query >= 2) & (query <= 4) & (key >= 1) & (key < 6)


def test_marian() -> None:
    from tests.capture.generating import never_ending
    from tests.capture.zoo import Kind, made, text
    from tests.small import BART

    kind = Kind(transformers.MarianMTModel, transformers.MarianConfig(**BART), text)
    model, eager = never_ending(made(kind)), with_oracle(never_ending(made(kind)))
    prompt, there = tokens(length=PROMPT), padded("none", PROMPT)
    layer = "model.decoder.layers.0.encoder_attn"
    with Oracle(eager, _middle, [layer], ablated=[(layer, 3)]).running():
        expected = scores(eager, prompt, there, use_cache=False)
    pattern = pairs(queries=[2, 3, 4], keys=slice(1, 6))
    with regard.ablate(model, [(layer, 3)]), regard.knock_out(model, pattern, layers=[layer]):
        found = scores(model, prompt, there)
    same(found, expected)


def test_the_mean_of_a_step_is_refused() -> None:
    model = writer("Llama")
    with (
        pytest.raises(
            ValueError, match=r'by="mean" is of all positions, and this call has 1 of 12'
        ),
        regard.ablate(model, [(0, 2)], by="mean"),
    ):
        scores(model, tokens(length=PROMPT), padded("none", PROMPT))


def scores(model: Any, prompt: Tensor, there: Tensor, **options: Any) -> Any:
    """Generate a text, and return it with the logits of each step."""
    return generate(
        model, prompt, there, output_logits=True, return_dict_in_generate=True, **options
    )


def same(found: Any, expected: Any) -> None:
    assert torch.equal(found.sequences, expected.sequences)
    for one, other in zip(found.logits, expected.logits, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=5e-5)
