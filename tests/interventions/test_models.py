"""Real architectures, held against attention that is written out."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface

import regard
from regard.patterns import Pattern, pairs, window
from tests.capture.zoo import ZOO, Kind, made
from tests.interventions.oracle import NAME, Oracle, with_oracle

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")

WITHIN = 1e-5
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
BY_HAND = ("BLOOM", "DeBERTa-v2", "MPNet", "XLNet")

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


@pytest.mark.parametrize("name", ASKING)
def test_knocked_out(name: str) -> None:
    kind, layer = ZOO[name], _module(ZOO[name], ASKING[name])
    model, eager = made(kind), with_oracle(made(kind, "eager"))
    side = "left" if name in ("Llama", "GPT-2", "Gemma 2") else "right"
    inputs, rows = kind.inputs(side), real_rows(kind, name, side)
    with torch.no_grad():
        before = first(model(**inputs))
    for (pattern, forbids), heads in zip(SETS.values(), (None, [0, 3], [2], None), strict=True):
        with torch.no_grad(), Oracle(eager, forbids, [layer], heads).running():
            expected = first(eager(**inputs))
        with torch.no_grad(), regard.knock_out(model, pattern, layers=[layer], heads=heads):
            found = first(model(**inputs))
        assert (found - before)[rows].abs().max() > 100 * WITHIN
        torch.testing.assert_close(found[rows], expected[rows], rtol=0, atol=WITHIN)


@pytest.mark.parametrize("side", ["left", "right"])
def test_weights_without_the_share_of_sinks(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Granite returns them, which multiplies the output by what sinks leave."""
    kind = ZOO["gpt-oss"]
    layer, inputs = _module(kind, ASKING["gpt-oss"]), kind.inputs(side)
    model, eager = (with_oracle(made(kind, "eager")) for _ in range(2))
    for one in (model, eager):
        for number, block in enumerate(one.layers):
            torch.nn.init.constant_(block.self_attn.sinks, 2.0 * number)
    own = Oracle(model)._attention

    def apart(module: Any, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
        output, weights = own("", module, *args, **options)
        return output, (weights / weights.sum(dim=-1, keepdim=True)).nan_to_num()

    pattern, forbids = SETS["rectangle"]
    for heads in (None, [0, 3]):
        oracle = Oracle(eager, forbids, [layer], heads)
        with torch.no_grad(), oracle.running():
            expected = eager(**inputs, output_attentions=True)
            monkeypatch.setitem(AttentionInterface._global_mapping, NAME, apart)
            with regard.knock_out(model, pattern, layers=[layer], heads=heads):
                found = model(**inputs, output_attentions=True)
        rows = real_rows(kind, "gpt-oss", side)
        torch.testing.assert_close(first(found)[rows], first(expected)[rows], rtol=0, atol=WITHIN)
        shares = expected.attentions[1]
        shares = (shares / shares.sum(dim=-1, keepdim=True)).nan_to_num()
        torch.testing.assert_close(found.attentions[1], shares, rtol=0, atol=WITHIN)


def test_weights_of_which_sinks_have_some_other_share(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = ZOO["gpt-oss"]
    model = with_oracle(made(kind, "eager"))
    own = Oracle(model)._attention

    def halved(module: Any, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
        output, weights = own("", module, *args, **options)
        return output, weights / 2

    rule = "rows of its weights sum to 1 neither with nor without its sinks"
    with Oracle(model).running():
        monkeypatch.setitem(AttentionInterface._global_mapping, NAME, halved)
        with pytest.raises(ValueError, match=rule), regard.knock_out(model, pairs(keys=[0])):
            model(**kind.inputs("none"))


@pytest.mark.parametrize("name", ASKING)
def test_ablated(name: str) -> None:
    kind, layer = ZOO[name], _module(ZOO[name], ASKING[name])
    model, eager = made(kind), with_oracle(made(kind, "eager"))
    # One sequence: of those that queries of another one look at, padding isn't known.
    inputs = {key: value[:1] for key, value in kind.inputs("none").items()}
    with torch.no_grad(), regard.watch(model, values=True) as seen:
        before = first(model(**inputs))
    ablated = [(layer, 1), (layer, 2)]
    for by in ("zero", "mean"):
        with torch.no_grad(), Oracle(eager, ablated=ablated, mean=by == "mean").running():
            expected = first(eager(**inputs))
        with torch.no_grad(), regard.ablate(model, ablated, by=by):
            found = first(model(**inputs))
        assert (found - before).abs().max() > 100 * WITHIN
        torch.testing.assert_close(found, expected, rtol=0, atol=WITHIN)
    with torch.no_grad(), regard.patch(model, seen, ablated):
        found = first(model(**inputs))
    torch.testing.assert_close(found, before, rtol=0, atol=WITHIN)


@pytest.mark.parametrize("name", BY_HAND)
def test_written_out_by_the_model_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = ZOO[name]
    model, inputs = made(kind), kind.inputs("right")
    with torch.no_grad(), regard.watch(model) as seen:
        before = first(model(**inputs))
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
    assert (found - before)[rows].abs().max() > 100 * WITHIN


def _module(kind: Kind, ending: str) -> str:
    (name,) = [name for name, _ in made(kind).named_modules() if name.endswith(ending)]
    return name
