"""Attention that is drawn to spans, held against attention that is written out."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.patterns import Pattern, pairs
from tests.capture.generating import PROMPT, WRITERS, padded, translator, writer
from tests.capture.zoo import ZOO, made, tokens
from tests.interventions.oracle import Oracle, with_oracle
from tests.interventions.test_generating import LAYER, same, scores
from tests.interventions.test_models import ASKING, BY_HAND, WITHIN, _module, first, real_rows

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")

SPAN = [range(1, 4), 6]
STRENGTHS: list[dict[str, float]] = [
    {"factor": 10.0},
    {"factor": 0.2},
    {"factor": 1.1},
    {"share": 0.5},
]


def in_span(batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return ((key >= 1) & (key < 4)) | (key == 6)


def attended(model: nn.Module, layer: str, run: Callable[[], Any]) -> tuple[Tensor, Tensor]:
    """Return what a module and the model return."""
    kept: list[Tensor] = []
    module = model.get_submodule(layer)
    with module.register_forward_hook(
        lambda module, given, output: kept.append(
            first(output) if isinstance(output, tuple) else output
        )
    ):
        output = first(run())
    return kept[0], output


@pytest.mark.parametrize("kernel", [None, "eager"])
@pytest.mark.parametrize("name", ASKING)
def test_architectures(name: str, kernel: str | None) -> None:
    kind, layer = ZOO[name], _module(ZOO[name], ASKING[name])
    side = "left" if name in ("Llama", "GPT-2", "Gemma 2") else "right"
    inputs, rows = kind.inputs(side), real_rows(kind, name, side)
    # The encoder of Whisper has no padding.
    inner = slice(None) if name == "Whisper" else rows
    precisions = {torch.float32: WITHIN, torch.float64: 1e-10}
    if kernel == "eager" or name in ("Gemma 2", "gpt-oss"):
        # Eager attention has a softmax in float32.
        del precisions[torch.float64]
    for dtype, within in precisions.items():
        model = (made(kind) if kernel is None else made(kind, kernel)).to(dtype)
        eager = with_oracle(made(kind, "eager").to(dtype))
        own = {n: x.to(dtype) if x.is_floating_point() else x for n, x in inputs.items()}
        with torch.no_grad():
            before, _ = attended(model, layer, lambda: model(**own))
        for strength, heads in zip(STRENGTHS, (None, [0, 3], None, [2]), strict=True):
            oracle = Oracle(eager, in_span, [layer], heads, **strength)
            with torch.no_grad(), oracle.running():
                expected = attended(eager, layer, lambda: eager(**own))
            with (
                torch.no_grad(),
                regard.steer(model, SPAN, layers=[layer], heads=heads, **strength),
            ):
                result = attended(model, layer, lambda: model(**own))
            assert (result[0] - before)[inner].abs().max() > 1e-4
            torch.testing.assert_close(result[0][inner], expected[0][inner], rtol=0, atol=within)
            # Norms of many models compute in float32.
            torch.testing.assert_close(result[1][rows], expected[1][rows], rtol=0, atol=WITHIN)


@pytest.mark.parametrize("strength", STRENGTHS, ids=str)
@pytest.mark.parametrize("name", BY_HAND)
def test_written_out_by_the_model_itself(
    name: str, strength: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = ZOO[name]
    model, inputs = made(kind), kind.inputs("right")
    with torch.no_grad(), regard.watch(model) as seen:
        before = first(model(**inputs))
    layer = seen[1].module
    with (
        torch.no_grad(),
        regard.watch(model) as seen,
        regard.steer(model, SPAN, layers=[layer], heads=[0, 2], **strength),
    ):
        output = first(model(**inputs))
    seen.verify()
    softmax, count = F.softmax, [0]

    def weighed(scores: Tensor, *args: Any, **options: Any) -> Tensor:
        count[0] += 1
        weights = softmax(scores, *args, **options)
        if count[0] != 2:
            return weights
        oracle = Oracle(model, in_span, heads=[0, 2], **strength)
        return oracle._weighed(weights, oracle._forbidden(scores).expand_as(scores))

    for owner in (F, torch, torch.nn.functional):
        monkeypatch.setattr(owner, "softmax", weighed)
    with torch.no_grad():
        expected = first(model(**inputs))
    assert count[0] == 2
    rows = real_rows(kind, name, "right")
    torch.testing.assert_close(output[rows], expected[rows], rtol=0, atol=WITHIN)
    assert (output - before)[rows].abs().max() > 100 * WITHIN


@pytest.mark.parametrize("strength", [*STRENGTHS, {"factor": 0.0}], ids=str)
@pytest.mark.parametrize("side", ["none", "left"])
@pytest.mark.parametrize("name", WRITERS)
def test_in_generate(name: str, side: str, strength: dict[str, float]) -> None:
    prompt, there = tokens(length=PROMPT), padded(side, PROMPT)
    layer = LAYER.get(name, "model.layers.1.self_attn")
    model, eager = writer(name), with_oracle(writer(name, "eager"))
    oracle = Oracle(eager, in_span, [layer], ablated=[(layer, 1)], **strength)
    with oracle.running():
        expected = scores(eager, prompt, there, use_cache=False)
    with regard.steer(model, SPAN, layers=[1], **strength), regard.ablate(model, [(1, 1)]):
        same(scores(model, prompt, there), expected)


@pytest.mark.parametrize("strength", STRENGTHS, ids=str)
def test_translators(strength: dict[str, float]) -> None:
    prompt, there = tokens(length=PROMPT), padded("none", PROMPT)
    layer = "model.decoder.layers.0.encoder_attn"
    model, eager = translator("BART"), with_oracle(translator("BART"))
    with Oracle(eager, in_span, [layer], **strength).running():
        expected = scores(eager, prompt, there, use_cache=False)
    with regard.steer(model, SPAN, layers=[layer], **strength):
        same(scores(model, prompt, there), expected)
    rule = r"^layers: model.* is cross-attention, so name the layers that are to be changed$"
    with pytest.raises(ValueError, match=rule), regard.steer(model, SPAN, **strength):
        scores(model, prompt, there)
