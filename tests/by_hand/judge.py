"""What Regard says of a module, held against the truth: right, refused or wrong."""

from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor

import regard
from regard.calls import AttentionCall
from regard.interventions.patch import Part
from tests.by_hand.modules import HEADS, SIZES, Attention, Inputs, Spec, inputs_of, runner
from tests.by_hand.truth import truth

TOLERANCE = 2e-5
HEAD = 1

PARTS: tuple[Part, ...] = get_args(Part)

RIGHT, REFUSED, WRONG = "right", "refused", "wrong"
Verdicts = dict[str, str]
"""By question: the verdict, with what was wrong behind it."""


def judge(spec: Spec) -> Verdicts:
    """Ask all that is asked of a module."""
    model, given = Attention(spec).eval(), inputs_of(spec)
    run = runner(model, given)
    expected = truth(model, given)
    with torch.no_grad():
        gap = _gap(run(), expected.output, given, spec)
    if gap > TOLERANCE:
        raise AssertionError(f"{spec}: the truth is not what the module computes, by {gap:.1e}")
    effects: dict[str, Callable[[], str]] = {
        "effects": lambda: _effects(model, given),
        "head effects": lambda: _head_effects(model, given),
    }
    questions: dict[str, Callable[[], str]] = {
        "weights": lambda: _weights(model, given),
        "counts": lambda: _counts(model, given),
        "knock_out": lambda: _knock_out(model, given),
        "ablate": lambda: _ablate(model, given, mean=False),
        "mean": lambda: _ablate(model, given, mean=True),
        **{part: partial(_patch, model, given, part) for part in PARTS},
        # FlexAttention has no backward on CPUs.
        **({} if spec.kernel == "flex" else effects),
    }
    return {name: _answer(question) for name, question in questions.items()}


def _answer(question: Callable[[], str]) -> str:
    try:
        return question()
    except ValueError as error:
        return f"{REFUSED}: {error}"


def _gap(output: Tensor, expected: Tensor, given: Inputs, spec: Spec) -> float:
    """Return the largest difference in rows that have something to attend to."""
    output, expected = output.detach(), expected.detach()
    rows = torch.ones(output.shape[:2], dtype=torch.bool)
    if given.allowed is not None and not spec.kind.startswith("memory"):
        rows = given.allowed.any(dim=-1).expand(rows.shape)
    difference = (output.double() - expected)[rows] / max(1.0, float(expected[rows].abs().max()))
    return float("inf") if bool(difference.isnan().any()) else float(difference.abs().max())


def _verdict(gap: float, scale: float = 1.0) -> str:
    return RIGHT if gap <= TOLERANCE * max(1.0, scale) else f"{WRONG}: by {gap:.1e}"


def _watched(model: Attention, given: Inputs, **options: bool) -> AttentionCall:
    with regard.watch(model, **options) as seen:
        output = runner(model, given)()
        if options:
            _target(output, given).backward()
    call = seen[-1]
    if call.problem:
        raise ValueError(call.problem)
    return call


def _weights(model: Attention, given: Inputs) -> str:
    with torch.no_grad():
        call = _watched(model, given)
        expected = truth(model, given)
    weights = call.matrix.dense().double()
    # Rows without keys are whatever the model makes of them.
    rows = expected.allowed.any(dim=-1)[:, None, :, None].expand(-1, HEADS, -1, -1)
    if not call.heads_known:
        # Each head must be there, in whatever order.
        found, heads = weights.flatten(0, 1), expected.weights.flatten(0, 1)
        if found.shape != heads.shape:
            return f"{WRONG}: {list(found.shape)} instead of {list(heads.shape)}"
        gaps = (found[:, None] - heads).abs().masked_fill(~rows.flatten(0, 1), 0.0)
        is_there = gaps.amax(dim=(2, 3)).amin(dim=0) < TOLERANCE
        return f"{REFUSED}: heads are unknown" if bool(is_there.all()) else f"{WRONG}: no head"
    if weights.shape != expected.weights.shape:
        return f"{WRONG}: {list(weights.shape)} instead of {list(expected.weights.shape)}"
    return _verdict(float((weights - expected.weights).abs().masked_fill(~rows, 0.0).max()))


def _counts(model: Attention, given: Inputs) -> str:
    """Count the queries that may attend to each key."""
    with torch.no_grad():
        call = _watched(model, given)
    received = call.matrix.received()
    if not call.heads_known:
        raise ValueError("heads are unknown")
    expected = truth(model, given).allowed.sum(dim=1)[:, None]
    same = received.queries.shape[-1] == expected.shape[-1] and bool(
        (received.queries == expected).all()
    )
    return RIGHT if same else f"{WRONG}: counts of queries"


def pair_of(spec: Spec, given: Inputs) -> tuple[int, int]:
    """Return a query and a key, by their tokens."""
    _, queries, keys = SIZES[spec.sizes]
    first = keys - queries if spec.is_cached else 0
    return first + min(3, queries - 1), 1


def _knock_out(model: Attention, given: Inputs) -> str:
    pair = pair_of(model.spec, given)
    pattern = regard.pairs(queries=[pair[0]], keys=[pair[1]])
    layers = [""] if model.spec.kernel != "mha" else ["mha"]
    with torch.no_grad(), regard.knock_out(model, pattern, layers=layers):
        output = runner(model, given)()
    expected = truth(model, given, knocked=[pair]).output
    return _verdict(_gap(output, expected, given, model.spec))


def _ablate(model: Attention, given: Inputs, *, mean: bool) -> str:
    layer = "mha" if model.spec.kernel == "mha" else ""
    by = "mean" if mean else "zero"
    with torch.no_grad(), regard.ablate(model, [(layer, HEAD)], by=by):
        output = runner(model, given)()
    expected = truth(model, given, ablated=HEAD, mean=mean).output
    if mean:
        # Rows of padding are whatever the model makes of them.
        output, expected = output[given.real], expected.detach()[given.real]
        gap = float((output.double() - expected).abs().max())
        return _verdict(gap, float(expected.abs().max()))
    return _verdict(_gap(output, expected, given, model.spec))


def _patch(model: Attention, given: Inputs, part: Part) -> str:
    chance = torch.Generator().manual_seed(model.spec.seed + 1)

    def drawn(tensor: Tensor | None) -> Any:
        return None if tensor is None else torch.randn(tensor.shape, generator=chance)

    texts = {name: drawn(getattr(given, name)) for name in ("x", "context", "prefix")}
    other = given._replace(**texts)
    layer = "mha" if model.spec.kernel == "mha" else ""
    with torch.no_grad():
        with regard.watch(model, values=True) as seen:
            runner(model, other)()
        try:
            with regard.patch(model, seen, [(layer, HEAD)], part=part):
                output = runner(model, given)()
        except RuntimeError as error:
            # The watched calls are those of several runs.
            return f"{REFUSED}: {error}"
    expected = truth(model, given, part=part, head=HEAD, other=other).output
    return _verdict(_gap(output, expected, given, model.spec))


def _target(output: Tensor, given: Inputs) -> Tensor:
    """Return a number that depends on the output in no simple way."""
    factors = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view(output.shape)
    rows = torch.ones(output.shape[:2], dtype=torch.bool)
    if given.allowed is not None:
        rows = given.allowed.any(dim=-1).expand(rows.shape)
    return (output.tanh() * factors)[rows].sum()


def _effects(model: Attention, given: Inputs) -> str:
    call = _watched(model, given, effects=True)
    effects = call.effects.dense().double()
    if not call.heads_known:
        raise ValueError("heads are unknown")
    expected = truth(model, given)
    _target(expected.output, given).backward()
    gradient = expected.scores.grad
    assert gradient is not None
    if effects.shape != gradient.shape:
        return f"{WRONG}: {list(effects.shape)} instead of {list(gradient.shape)}"
    gradient = gradient.nan_to_num(0.0)
    return _verdict(float((effects - gradient).detach().abs().max()), float(gradient.abs().max()))


def _head_effects(model: Attention, given: Inputs) -> str:
    with regard.watch(model, effects=True) as seen:
        output = runner(model, given)()
        _target(output, given).backward()
    found = seen[-1:].effects.heads().effects[0].double()
    expected = truth(model, given)
    _target(expected.output, given).backward()
    assert expected.heads.grad is not None
    products = (expected.heads * expected.heads.grad).sum(dim=(0, 2, 3))
    if found.shape != products.shape:
        return f"{WRONG}: {list(found.shape)} instead of {list(products.shape)}"
    # Sums of products that may cancel.
    size = (expected.heads * expected.heads.grad).abs().sum(dim=(0, 2, 3)).max()
    return _verdict(float((found - products).detach().abs().max()), float(size.detach()))
