"""Against a plain loop over the formulas, in float64."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.layers import RecurrentOutput, RecurrentSelfAttention, RecurrentState
from tests.layers.laws import assert_copies, assert_learns, in_every_way
from tests.layers.rounding import assert_close, normal, shuffle, with_gradients

BATCH, LENGTH, INPUT_DIM, STATE_DIM = 3, 7, 2, 5
# A step sums over its input, twice over a state, and over all steps before; each builds on the
# last. Gradients are summed over steps and batch.
TERMS = LENGTH * (INPUT_DIM + 4 * STATE_DIM + 2 * LENGTH) + BATCH * LENGTH

ALIGNMENTS = ["dot", "scaled_dot", "bilinear", "additive"]
LENGTHS = [4, 7, 0]


def layer_of(
    align: str = "scaled_dot", *, dtype: torch.dtype = torch.float64, **options: Any
) -> RecurrentSelfAttention:
    layer = RecurrentSelfAttention(INPUT_DIM, STATE_DIM, align=align, **options)
    shuffle(layer)
    return layer.to(dtype)


def inputs(length: int = LENGTH, dtype: torch.dtype = torch.float64) -> Tensor:
    return normal(BATCH, length, INPUT_DIM, dtype=dtype, seed=1)


def by_hand(
    x: Tensor, weights: dict[str, Tensor], align: str
) -> tuple[list[Tensor], list[Tensor], list[list[Tensor]]]:
    """Run one sequence: h_t = tanh(A [x_t, c_{t−1}] + b), c_t = Σ α_{t,i} h_i; return h, c, α."""

    def score(earlier: Tensor, now: Tensor) -> Tensor:
        if align == "dot":
            return sum(earlier[n] * now[n] for n in range(STATE_DIM))
        if align == "scaled_dot":
            return sum(earlier[n] * now[n] for n in range(STATE_DIM)) / math.sqrt(STATE_DIM)
        if align == "bilinear":
            return earlier @ weights["align.weight"] @ now
        first, second = weights["align.earlier.weight"], weights["align.current.weight"]
        return weights["align.total.weight"][0] @ torch.tanh(first @ earlier + second @ now)

    context = x.new_zeros(STATE_DIM)
    states, contexts, rows = [], [], []
    for step in x:
        total = weights["transition.weight"] @ torch.cat([step, context])
        if "transition.bias" in weights:
            total = total + weights["transition.bias"]
        states.append(torch.tanh(total))
        exponentials = [torch.exp(score(earlier, states[-1])) for earlier in states]
        row = [one / sum(exponentials) for one in exponentials]
        context = sum(weight * state for weight, state in zip(row, states, strict=True))
        contexts.append(context)
        rows.append(row)
    return states, contexts, rows


def expected_output(layer: RecurrentSelfAttention, x: Tensor, align: str) -> RecurrentOutput:
    weights = dict(layer.named_parameters())
    states, contexts, matrices = [], [], []
    for sequence in x:
        one = by_hand(sequence, weights, align)
        states.append(torch.stack(one[0]))
        contexts.append(torch.stack(one[1]))
        zero = x.new_zeros(())
        rows = [torch.stack(row + [zero] * (len(x[0]) - len(row))) for row in one[2]]
        matrices.append(torch.stack(rows))
    return RecurrentOutput(torch.stack(states), torch.stack(contexts), torch.stack(matrices))


def results(output: RecurrentOutput, layer: RecurrentSelfAttention, x: Tensor) -> dict[str, Tensor]:
    """Return all parts of an output, and the gradients that come from them all."""
    joined = torch.cat([part.flatten(1) for part in output], dim=1)
    found = with_gradients(joined, {"x": x} | dict(layer.named_parameters()))
    return found | {name: part.detach() for name, part in output._asdict().items()}


# What it computes


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("align", ALIGNMENTS)
def test_the_formulas(align: str, bias: bool) -> None:
    layer, x = layer_of(align, bias=bias), inputs().requires_grad_()
    assert (layer.transition.bias is not None) == bias
    expected = results(expected_output(layer, x, align), layer, x)
    assert_close(results(layer(x), layer, x), expected, terms=TERMS)

    layer, x = layer.float(), x.detach().float().requires_grad_()
    output = layer(x)
    assert {part.dtype for part in output} == {torch.float32}
    assert_close(results(output, layer, x), expected, terms=TERMS)


def test_by_default_products_are_scaled_and_there_is_no_bias() -> None:
    layer = RecurrentSelfAttention(INPUT_DIM, STATE_DIM).double()
    assert [name for name, _ in layer.named_parameters()] == ["transition.weight"]
    x = inputs()
    found, expected = layer(x)._asdict(), expected_output(layer, x, "scaled_dot")._asdict()
    assert_close(found, expected, terms=TERMS)


@pytest.mark.parametrize("align", ALIGNMENTS)
def test_the_first_context_is_the_first_state(align: str) -> None:
    output = layer_of(align)(inputs())
    assert torch.equal(output.contexts[:, 0], output.states[:, 0])


@pytest.mark.parametrize("align", ALIGNMENTS)
def test_nobody_looks_ahead(align: str) -> None:
    weights = layer_of(align)(inputs()).weights
    assert torch.equal(weights, weights.tril())
    assert bool((weights.tril() > 0).sum() == BATCH * LENGTH * (LENGTH + 1) // 2)
    ones = torch.ones(BATCH, LENGTH, dtype=torch.float64)
    assert_close({"sums": weights.sum(dim=2)}, {"sums": ones}, terms=LENGTH)


def test_what_comes_later_changes_nothing_before() -> None:
    layer, x = layer_of("additive"), inputs()
    other = x.clone()
    other[:, 4:] = normal(BATCH, 3, INPUT_DIM, seed=9)
    for one, two in zip(layer(x), layer(other), strict=True):
        assert torch.equal(one[:, :4], two[:, :4])
        assert not torch.equal(one[:, 4:], two[:, 4:])


@pytest.mark.parametrize("align", ALIGNMENTS)
def test_contexts_are_weighted_states(align: str) -> None:
    output = layer_of(align)(inputs())
    expected = {"contexts": output.weights @ output.states}
    assert_close({"contexts": output.contexts}, expected, terms=LENGTH)


@pytest.mark.parametrize("align", ALIGNMENTS)
def test_gradcheck(align: str) -> None:
    layer = RecurrentSelfAttention(1, 2, align=align, bias=True).double()
    shuffle(layer)
    x = normal(2, 3, 1, seed=1).requires_grad_()
    names = [name for name, _ in layer.named_parameters()]

    def output(x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip(names, weights, strict=True))
        return tuple(torch.func.functional_call(layer, named, (x,)))

    assert torch.autograd.gradcheck(output, (x, *layer.parameters()))


# Step by step


@pytest.mark.parametrize("align", ALIGNMENTS)
def test_steps_are_the_whole(align: str) -> None:
    layer, x = layer_of(align, bias=True), inputs().requires_grad_()
    past: RecurrentState | None = None
    contexts, rows = [], []
    for t in range(LENGTH):
        weights, past = layer.step(x[:, t], past)
        assert weights.shape == (BATCH, t + 1)
        assert past.states.shape == past.marks.shape == (BATCH, t + 1, STATE_DIM)
        assert past.context.shape == (BATCH, STATE_DIM)
        contexts.append(past.context)
        rows.append(nn.functional.pad(weights, (0, LENGTH - t - 1)))
    assert past is not None
    found = RecurrentOutput(past.states, torch.stack(contexts, 1), torch.stack(rows, 1))
    assert_close(results(found, layer, x), results(layer(x), layer, x), terms=TERMS)


def test_a_step_leaves_what_was_known_as_it_was() -> None:
    layer, x = layer_of("bilinear"), inputs()
    _, past = layer.step(x[:, 0])
    before = [part.clone() for part in past]
    # Two ways to go on from the same place.
    first, second = layer.step(x[:, 1], past), layer.step(x[:, 2], past)
    assert all(torch.equal(one, two) for one, two in zip(past, before, strict=True))
    assert not torch.equal(first[0], second[0])


# Lengths


@pytest.mark.parametrize("kind", [list, tuple, torch.tensor])
@pytest.mark.parametrize("align", ALIGNMENTS)
def test_padded_sequences_are_those_alone(align: str, kind: Callable[[list[int]], Any]) -> None:
    layer, x = layer_of(align, bias=True), inputs()
    output = layer(x, lengths=kind(LENGTHS))
    for b, length in enumerate(LENGTHS):
        alone = layer(x[b : b + 1, :length])
        found = {
            "states": output.states[b : b + 1, :length],
            "contexts": output.contexts[b : b + 1, :length],
            "weights": output.weights[b : b + 1, :length, :length],
        }
        assert_close(found, alone._asdict(), terms=TERMS)
        for part in output:
            assert not part[b, length:].any()
        assert not output.weights[b, :, length:].any()


@pytest.mark.parametrize("filler", [math.nan, math.inf, -math.inf, 1e308])
@pytest.mark.parametrize("align", ALIGNMENTS)
def test_what_stands_in_the_padding_reaches_nothing(align: str, filler: float) -> None:
    layer = layer_of(align, bias=True)
    clean = inputs()
    dirty = clean.clone()
    for b, length in enumerate(LENGTHS):
        dirty[b, length:] = filler
    clean, dirty = clean.requires_grad_(), dirty.requires_grad_()
    found = results(layer(dirty, lengths=LENGTHS), layer, dirty)
    expected = results(layer(clean, lengths=LENGTHS), layer, clean)
    for name, part in found.items():
        assert bool(part.isfinite().all()), name
        assert torch.equal(part, expected[name]), name
    for b, length in enumerate(LENGTHS):
        assert not found["x"][b, length:].any()
        assert length == 0 or bool(found["x"][b, :length].all())


def test_gradients_of_padded_sequences_are_those_alone() -> None:
    layer, x = layer_of("additive", bias=True), inputs().requires_grad_()
    padded = layer(x, lengths=LENGTHS).contexts
    grad = normal(*padded.shape, seed=4)
    names = ["x", *(name for name, _ in layer.named_parameters())]
    tensors = [x, *layer.parameters()]
    found = torch.autograd.grad(padded, tensors, grad)
    alone = sum(
        (layer(x[b : b + 1, :length]).contexts * grad[b : b + 1, :length]).sum()
        for b, length in enumerate(LENGTHS)
        if length
    )
    expected = torch.autograd.grad(alone, tensors)
    assert_close(
        dict(zip(names, found, strict=True)), dict(zip(names, expected, strict=True)), terms=TERMS
    )


def test_full_lengths_change_nothing() -> None:
    layer, x = layer_of(), inputs()
    for one, two in zip(layer(x), layer(x, lengths=[LENGTH] * BATCH), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([4, 7], r"lengths or starts must have one entry per sequence, got 2 for a batch of 3$"),
        ([4, 7, 8], r"sequences must end within the keys \(7\), got an end at 8$"),
        ([4, -1, 7], r"lengths must be at least 0, got -1$"),
        ([4.0, 2.0, 7.0], r"lengths must be a list of integers, one per sequence, got \[4.0"),
        ([], r"lengths must be a list of integers, one per sequence, got \[\]$"),
        (
            torch.tensor([True, True, False]),
            r"lengths must be a list of integers, one per sequence",
        ),
    ],
)
def test_lengths_that_do_not_fit(lengths: Any, message: str, unchecked: None) -> None:
    with pytest.raises(ValueError, match=message):
        layer_of()(inputs(), lengths=lengths)


@pytest.mark.parametrize("lengths", [None, [0, 0, 0]])
@pytest.mark.parametrize("align", ALIGNMENTS)
def test_no_steps(align: str, lengths: list[int] | None) -> None:
    output = layer_of(align)(inputs(0), lengths=lengths)
    assert [tuple(part.shape) for part in output] == [
        (BATCH, 0, STATE_DIM),
        (BATCH, 0, STATE_DIM),
        (BATCH, 0, 0),
    ]
    assert {part.dtype for part in output} == {torch.float64}


def test_no_sequences() -> None:
    output = layer_of()(inputs()[:0])
    assert output.weights.shape == (0, LENGTH, LENGTH)


# As a module


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"input_dim": 0}, r"^input_dim must be at least 1, got 0$"),
        ({"state_dim": -1}, r"^state_dim must be at least 1, got -1$"),
        (
            {"align": "cosine"},
            r'^align must be one of "dot", "scaled_dot", "bilinear", "additive", got "cosine"$',
        ),
    ],
)
def test_refusals(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RecurrentSelfAttention(**({"input_dim": 2, "state_dim": 5} | arguments))


@pytest.mark.parametrize(
    ("align", "expected"),
    [("dot", "Dot("), ("scaled_dot", "Dot("), ("bilinear", "Bilinear("), ("additive", "Additive(")],
)
def test_repr(align: str, expected: str) -> None:
    printed = repr(RecurrentSelfAttention(2, 5, align=align))
    assert printed.startswith("RecurrentSelfAttention(")
    assert f"(align): {expected}" in printed
    assert "(transition): Linear(in_features=7, out_features=5, bias=False)" in printed


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("align", ALIGNMENTS)
def test_half_precision(align: str, dtype: torch.dtype) -> None:
    layer, x = layer_of(align, dtype=dtype), inputs(3, dtype)
    output = layer(x, lengths=[3, 2, 1])
    assert {part.dtype for part in output} == {dtype}
    expected = layer.double()(x.double(), lengths=[3, 2, 1])
    terms = 3 * (INPUT_DIM + 4 * STATE_DIM + 2 * 3)
    assert_close(output._asdict(), expected._asdict(), terms=terms)


@in_every_way
@pytest.mark.parametrize("align", ALIGNMENTS)
def test_copies(
    align: str, copied: Callable[[RecurrentSelfAttention], RecurrentSelfAttention]
) -> None:
    layer, x = layer_of(align), inputs()
    assert_copies(layer, copied, lambda layer: layer(x).contexts)


@pytest.mark.parametrize("align", ALIGNMENTS)
def test_training_lowers_the_loss(align: str) -> None:
    torch.manual_seed(0)
    layer = RecurrentSelfAttention(INPUT_DIM, STATE_DIM, align=align, bias=True)
    x = inputs(dtype=torch.float32)
    target = torch.tanh(x.cumsum(dim=1)[..., :1].expand(-1, -1, STATE_DIM))
    assert_learns(layer, lambda: layer(x).contexts, target, rate=0.2, share=0.9)
