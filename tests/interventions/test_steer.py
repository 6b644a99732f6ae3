"""Attention that is drawn to spans, held against attention that is written out."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface

import regard
from regard.patterns import pairs
from tests.capture.generating import PROMPT, WRITERS, padded, translator, writer
from tests.capture.zoo import ZOO, made, tokens
from tests.interventions.oracle import NAME, Oracle, with_oracle
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
            before, _ = attended(model, layer, lambda model=model, own=own: model(**own))
        for strength, heads in zip(STRENGTHS, (None, [0, 3], None, [2]), strict=True):
            oracle = Oracle(eager, in_span, [layer], heads, **strength)
            with torch.no_grad(), oracle.running():
                expected = attended(eager, layer, lambda eager=eager, own=own: eager(**own))
            with (
                torch.no_grad(),
                regard.steer(model, SPAN, layers=[layer], heads=heads, **strength),
            ):
                result = attended(model, layer, lambda model=model, own=own: model(**own))
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


class Written(nn.Module):
    """Causal attention, by a kernel, or written down with a function of the weights."""

    num_heads = 2

    def __init__(self, *, kernel: bool, after: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mixed, self.kernel, self.after = nn.Linear(8, 24).double(), kernel, after

    def parts(self, x: Tensor) -> Tensor:
        return self.mixed(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.parts(x)
        if self.kernel:
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)
        later = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        weights = (query @ key.mT / 2).masked_fill(later, -torch.inf).softmax(dim=-1)
        return (weights if self.after is None else self.after(weights)) @ value

    def expected(
        self, x: Tensor, factor: float | None = None, share: float | None = None
    ) -> Tensor:
        query, key, value = self.parts(x)
        later = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        weights = (query @ key.mT / 2).masked_fill(later, -torch.inf).softmax(dim=-1)
        position = torch.arange(x.shape[1])
        span = in_span(position, position, position).double()
        part = (weights * span).sum(dim=-1, keepdim=True)
        if share is not None:
            low = (part > 0) & (part < share)
            part = torch.where(low, part, 0.5)
            factors = torch.where(low, share * (1 - part) / (part * (1 - share)), 1.0)
        else:
            factors = torch.full_like(part, factor)
        weights = weights * (1 + (factors - 1) * span)
        return weights / weights.sum(dim=-1, keepdim=True) @ value


def numbers(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(3, 11, 8, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("strength", STRENGTHS, ids=str)
@pytest.mark.parametrize("kernel", [True, False])
def test_gradients(kernel: bool, strength: dict[str, float]) -> None:
    model, x = Written(kernel=kernel), numbers().requires_grad_()
    with regard.steer(model, SPAN, **strength):
        output = model(x)
        (gradient,) = torch.autograd.grad(output.square().sum(), x)
    expected = model.expected(x, **strength)
    (expected_gradient,) = torch.autograd.grad(expected.square().sum(), x)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-9)


@pytest.mark.parametrize("strength", STRENGTHS, ids=str)
@pytest.mark.parametrize("kernel", [True, False])
def test_rows_that_see_no_span_or_nothing_else(kernel: bool, strength: dict[str, float]) -> None:
    model, x = Written(kernel=kernel), numbers()
    with torch.no_grad():
        plain = model(x)
        with regard.steer(model, SPAN, **strength):
            # The first row sees itself only, which is no key of the span.
            assert torch.equal(model(x)[:, :, 0], plain[:, :, 0])
        with regard.steer(model, range(11), **strength):
            torch.testing.assert_close(model(x), plain, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kernel", [True, False])
def test_factors_of_0_and_1(kernel: bool) -> None:
    model, x = Written(kernel=kernel), numbers()
    with torch.no_grad():
        plain = model(x)
        with regard.knock_out(model, pairs(keys=[1, 2, 3, 6]), heads=[1]):
            knocked = model(x)
        with regard.steer(model, SPAN, factor=0, heads=[1]):
            assert torch.equal(model(x), knocked)
        with regard.steer(model, SPAN, factor=1):
            assert torch.equal(model(x), plain)
        rule = r"^heads: .*has 2 heads, counted from 0, got head 2$"
        with pytest.raises(ValueError, match=rule), regard.steer(model, SPAN, factor=1, heads=[2]):
            model(x)


@pytest.mark.parametrize("strength", STRENGTHS, ids=str)
@pytest.mark.parametrize("kernel", [True, False])
def test_with_watch_and_knock_out(kernel: bool, strength: dict[str, float]) -> None:
    """Two interventions of scores, the weights that are seen, and their effects."""
    model, x = Written(kernel=kernel), numbers().requires_grad_()
    with (
        regard.watch(model, effects=True) as seen,
        regard.steer(model, SPAN, heads=[1], **strength),
        regard.knock_out(model, pairs(queries=[9], keys=[0, 6])),
    ):
        output = model(x)
        output.square().sum().backward()
    seen.verify()
    weights = seen[0].matrix.dense().double()
    value = model.parts(x)[2]
    torch.testing.assert_close(weights @ value, output, rtol=0, atol=1e-6)
    assert (weights[:, :, 9, [0, 6]] == 0).all()

    # Those of scores that the softmax gets.
    logarithms = weights.log().detach().requires_grad_()
    (logarithms.softmax(dim=-1) @ value.detach()).square().sum().backward()
    assert logarithms.grad is not None
    gradient = logarithms.grad.nan_to_num(0.0)
    torch.testing.assert_close(seen[0].effects.dense().double(), gradient, rtol=0, atol=1e-5)


@pytest.mark.parametrize("strength", STRENGTHS, ids=str)
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("kernel", [True, False])
def test_under_checkpoints(kernel: bool, reentrant: bool, strength: dict[str, float]) -> None:
    inner = Written(kernel=kernel)

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.inner, x, use_reentrant=reentrant)

    model, x = Checkpointed(), numbers().requires_grad_()
    with regard.steer(model, SPAN, **strength):
        model(x).square().sum().backward()
    y = numbers().requires_grad_()
    inner.expected(y, **strength).square().sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    torch.testing.assert_close(x.grad, y.grad, rtol=0, atol=1e-9)


@pytest.mark.parametrize("strength", STRENGTHS, ids=str)
@pytest.mark.parametrize("kernel", [True, False])
def test_half_precision(kernel: bool, strength: dict[str, float]) -> None:
    model, x = Written(kernel=kernel).bfloat16(), numbers().bfloat16()
    with torch.no_grad(), regard.steer(model, SPAN, **strength):
        output = model(x).double()
    with torch.no_grad():
        expected = model.double().expected(x.double(), **strength)
    eps = torch.finfo(torch.bfloat16).eps
    torch.testing.assert_close(output, expected, rtol=0, atol=8 * eps * float(expected.abs().max()))


@pytest.mark.parametrize(
    "after",
    [
        lambda weights: weights.flip(1),
        lambda weights: weights**2,
        lambda weights: weights.flip(0),
    ],
    ids=["heads in another order", "squared", "sequences in another order"],
)
def test_weights_that_are_others(after: Callable[[Tensor], Tensor]) -> None:
    model = Written(kernel=False, after=after)
    rule = r"the axes of its weights can't be told apart|its weights are no softmax"
    with pytest.raises(ValueError, match=rule), regard.steer(model, SPAN, factor=3, heads=[1]):
        model(numbers())


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({}, ValueError, r"^pass either factor or share, got factor=None and share=None$"),
        ({"factor": 2, "share": 0.5}, ValueError, r"^pass either factor or share, got factor=2 a"),
        ({"factor": -1}, ValueError, r"^factor must be at least 0 and finite, got -1$"),
        ({"factor": float("inf")}, ValueError, r"^factor must be at least 0 and finite, got inf$"),
        ({"factor": "2"}, TypeError, r"^factor must be a number, got '2'$"),
        ({"share": 1.0}, ValueError, r"^share must be between 0 and 1, got 1.0$"),
        ({"share": True}, TypeError, r"^share must be a number, got True$"),
        ({"factor": 2, "spans": []}, ValueError, r"^spans must have at least one position, got no"),
        ({"factor": 2, "spans": "a"}, TypeError, r"^spans must be ranges or positions .* got str$"),
        ({"factor": 2, "spans": (2, 5)}, ValueError, r"^pairs: keys must be a range, a slice or a"),
        ({"factor": 2, "heads": [-1]}, ValueError, r"^heads: a head must be at least 0, got -1$"),
        ({"factor": 2, "layers": [7]}, ValueError, r"^layers: 7 names no layer of the model"),
    ],
)
def test_arguments(arguments: dict[str, Any], kind: type[Exception], message: str) -> None:
    model = Written(kernel=True)
    arguments = {"spans": SPAN, **arguments}
    with pytest.raises(kind, match=message), regard.steer(model, **arguments):
        model(numbers())


@pytest.mark.parametrize("strength", STRENGTHS, ids=str)
def test_sinks_of_a_kernel_without_weights(
    strength: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = ZOO["gpt-oss"]
    layer, inputs = _module(kind, ASKING["gpt-oss"]), kind.inputs("left")
    model, eager = (with_oracle(made(kind, "eager")) for _ in range(2))
    own = Oracle(model)._attention
    with torch.no_grad(), Oracle(eager, in_span, [layer], [0, 3], **strength).running():
        expected = first(eager(**inputs))
        monkeypatch.setitem(
            AttentionInterface._global_mapping,
            NAME,
            lambda module, *args, **options: (own("", module, *args, **options)[0], None),
        )
        with regard.steer(model, SPAN, layers=[layer], heads=[0, 3], **strength):
            output = first(model(**inputs))
    rows = real_rows(kind, "gpt-oss", "left")
    torch.testing.assert_close(output[rows], expected[rows], rtol=0, atol=WITHIN)
