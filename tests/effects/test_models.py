"""Real architectures, held against attention that is written out."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import regard
from regard.patterns import Pattern, pairs, window
from tests.effects.oracle import NAME, Oracle
from tests.watch.zoo import ZOO, Kind, made

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")

WITHIN = 1e-5
# The name of each, a layer of it, and the length of what that looks at.
ASKING = {
    "BERT": "encoder.layer.1.attention.self",
    "ModernBERT": "layers.1.attn",
    "GPT-2": "h.1.attn",
    "Llama": "layers.1.self_attn",
    "Mistral": "layers.0.self_attn",
    "Gemma 2": "layers.1.self_attn",
    "gpt-oss": "layers.1.self_attn",
    "OPT": "decoder.layers.0.self_attn",
    "T5": "decoder.block.1.layer.1.EncDecAttention",
    "BART": "decoder.layers.1.self_attn",
    "Marian": "decoder.layers.1.encoder_attn",
    "Whisper": "encoder.layers.0.self_attn",
    "ViT": "layers.1.attention",
}
BY_HAND = {
    "BLOOM": "h.1",
    "DeBERTa-v2": "encoder.layer.1",
    "MPNet": "encoder.layer.1",
    "XLNet": "layer.1",
}

SETS: dict[str, tuple[Pattern, Callable[[Tensor, Tensor, Tensor], Tensor]]] = {
    "keys": (pairs(keys=[0, 3, 4]), lambda b, i, j: (j == 0) | (j == 3) | (j == 4)),
    "rectangle": (
        pairs(queries=slice(5, None), keys=range(2, 9)),
        lambda b, i, j: (i >= 5) & (j >= 2) & (j < 9),
    ),
    "near": (~window(before=3, after=3), lambda b, i, j: (i - j).abs() > 3),
    "itself and before": (window(before=60), lambda b, i, j: (j <= i) & (i - j <= 60)),
}


def first(outputs: Any) -> Tensor:
    """Return the first tensor that a model returns."""
    return outputs[0]


def real_rows(kind: Kind, name: str, side: str) -> Tensor | slice:
    inputs = kind.inputs(side)
    mask = inputs.get("decoder_attention_mask", inputs.get("attention_mask"))
    return slice(None) if mask is None or name == "ViT" else mask.bool()


@pytest.mark.parametrize("heads", [None, [0, 3]], ids=["all heads", "some heads"])
@pytest.mark.parametrize("some", SETS)
@pytest.mark.parametrize("name", ASKING)
def test_knocked_out(name: str, some: str, heads: list[int] | None) -> None:
    kind, layer = ZOO[name], _module(ZOO[name], ASKING[name])
    pattern, forbids = SETS[some]
    model, eager = made(kind), made(kind, "eager")
    eager.set_attn_implementation("eager")
    _with_oracle(eager)
    side = "left" if name in ("Llama", "GPT-2", "Gemma 2") else "right"
    inputs = kind.inputs(side)
    with torch.no_grad(), Oracle(eager, forbids, [layer], heads).running():
        expected = first(eager(**inputs))
    with torch.no_grad(), regard.knock_out(model, pattern, layers=[layer], heads=heads):
        found = first(model(**inputs))
    rows = real_rows(kind, name, side)
    assert (found - first(model(**inputs)))[rows].abs().max() > 1e-4
    torch.testing.assert_close(found[rows], expected[rows], rtol=0, atol=WITHIN)


@pytest.mark.parametrize("by", ["zero", "mean"])
@pytest.mark.parametrize("name", ASKING)
def test_ablated(name: str, by: str) -> None:
    kind, layer = ZOO[name], _module(ZOO[name], ASKING[name])
    model, eager = made(kind), made(kind, "eager")
    _with_oracle(eager)
    inputs = kind.inputs("none")
    if "EncDec" in layer or "encoder_attn" in layer:
        inputs = {key: value[:1] for key, value in inputs.items()}
    ablated = [(layer, 1), (layer, 2)]
    with torch.no_grad(), Oracle(eager, ablated=ablated, mean=by == "mean").running():
        expected = first(eager(**inputs))
    with torch.no_grad(), regard.ablate(model, ablated, by=by):
        found = first(model(**inputs))
    assert (found - first(model(**inputs))).abs().max() > 1e-4
    torch.testing.assert_close(found, expected, rtol=0, atol=WITHIN)


@pytest.mark.parametrize("name", BY_HAND)
def test_written_out_by_the_model_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = ZOO[name]
    model, inputs = made(kind), kind.inputs("right")
    with torch.no_grad(), regard.watch(model) as seen:
        model(**inputs)
    layer = seen[1].module
    pattern, forbids = SETS["rectangle"]
    with torch.no_grad(), regard.knock_out(model, pattern, layers=[layer], heads=[0, 2]):
        found = first(model(**inputs))
    softmax, count = F.softmax, [0]

    def masked(scores: Tensor, *args: Any, **options: Any) -> Tensor:
        count[0] += 1
        if count[0] == 2:
            oracle = Oracle(model, forbids, heads=[0, 2])
            scores = scores.masked_fill(oracle._forbidden(scores), -torch.inf)
        return softmax(scores, *args, **options)

    for owner in (F, torch, torch.nn.functional):
        monkeypatch.setattr(owner, "softmax", masked)
    with torch.no_grad():
        expected = first(model(**inputs))
    assert count[0] == 2
    rows = real_rows(kind, name, "right")
    torch.testing.assert_close(found[rows], expected[rows], rtol=0, atol=WITHIN)
    assert (found - expected)[rows].abs().max() < (
        found[rows] - seen_output(model, inputs, monkeypatch)[rows]
    ).abs().max()


def seen_output(model: Any, inputs: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch) -> Tensor:
    monkeypatch.undo()
    with torch.no_grad():
        return first(model(**inputs))


def _with_oracle(model: Any) -> None:
    """Let a model ask for the attention of the oracle."""
    for module in model.modules():
        config = getattr(module, "config", None)
        if config is not None:
            config._attn_implementation_internal = NAME


def _module(kind: Kind, ending: str) -> str:
    (name,) = [name for name, _ in made(kind).named_modules() if name.endswith(ending)]
    return name
