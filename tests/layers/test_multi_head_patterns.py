"""Who may look at whom in multi-head attention, and that its matrix is never written down."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard.patterns import Pattern, causal, padding, window
from regard.positions import Rotary, alibi, softcap
from tests.layers.multi_head import (
    BATCH,
    CONTEXT_DIM,
    MODEL_DIM,
    QUERIES,
    TERMS,
    Allowed,
    check,
    layer_of,
)
from tests.layers.rounding import assert_close, normal

# Who may look at whom


@pytest.mark.parametrize("always", [None, causal()], ids=str)
@pytest.mark.parametrize(
    ("now", "predicate"),
    [
        (None, lambda b, i, j: True),
        (padding([3, 7]), lambda b, i, j: j < (3, 7)[b]),
        (padding([3, 4], starts=[0, 2]), lambda b, i, j: (0, 2)[b] <= j < (3, 6)[b]),
        (window(before=2, after=1), lambda b, i, j: j in (i - 2, i - 1, i, i + 1)),
    ],
    ids=["nothing", "padding", "padding on both sides", "window"],
)
def test_what_is_allowed_always_and_now(
    always: Pattern | None, now: Pattern | None, predicate: Allowed
) -> None:
    def allowed(b: int, i: int, j: int) -> bool:
        return predicate(b, i, j) and (always is None or j <= i)

    layer, x = layer_of(pattern=always), normal(BATCH, QUERIES, MODEL_DIM, seed=1)
    check(layer, x, pattern=now, allowed=allowed)
    weights = layer.matrix(x, pattern=now).dense()
    for b in range(BATCH):
        for i in range(QUERIES):
            for j in range(QUERIES):
                assert bool((weights[b, :, i, j] > 0).all()) == allowed(b, i, j)


def test_who_may_look_at_nothing_gets_the_bias_alone() -> None:
    # Left padding under a causal pattern: the first queries of the second sequence are padding.
    layer = layer_of(pattern=causal())
    x = normal(BATCH, QUERIES, MODEL_DIM, seed=1)
    pattern = padding(starts=[0, 3])
    check(layer, x, pattern=pattern, allowed=lambda b, i, j: (0, 3)[b] <= j <= i)
    for i in range(3):
        assert torch.equal(layer(x, pattern=pattern)[1, i], layer.output.bias)


def test_a_sequence_alone_and_padded_on_either_side() -> None:
    layer = layer_of(pattern=causal(), rotary=Rotary(4))
    x = normal(1, 4, MODEL_DIM, seed=1)
    noise = normal(1, 3, MODEL_DIM, seed=2)
    alone = layer(x)
    right = layer(torch.cat([x, noise], dim=1), pattern=padding([4]))[:, :4]
    left = layer(torch.cat([noise, x], dim=1), pattern=padding(starts=[3]))[:, 3:]
    # Rotary knows distances only: it does not matter that all stands three places further on.
    found, expected = {"right": right, "left": left}, {"right": alone, "left": alone}
    assert_close(found, expected, terms=TERMS)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pattern": causal()},
        {"num_key_heads": 1, "key_dim": 7, "value_dim": 2, "scale": 0.3},
        {"rotary": Rotary(4), "pattern": causal() & window(before=2)},
        {"bias": alibi(3)},
        {"bias": softcap(0.5), "dropout": 0.3},
    ],
    ids=str,
)
def test_the_matrix_is_what_forward_multiplies_values_by(options: dict[str, Any]) -> None:
    layer = layer_of(**options).eval()
    x = normal(BATCH, QUERIES, MODEL_DIM, seed=1)
    matrix = layer.matrix(x)
    assert matrix.shape == (BATCH, 3, QUERIES, QUERIES)
    value = layer.value(x).unflatten(-1, (layer.num_key_heads, -1)).transpose(1, 2)
    value = value.repeat_interleave(3 // layer.num_key_heads, dim=1)
    seen = (matrix.dense() @ value).transpose(1, 2).flatten(2)
    assert_close({"output": layer(x)}, {"output": layer.output(seen)}, terms=TERMS)


# The kernel


class Sizes(TorchDispatchMode):
    """Write down which operators run, and how large the tensors are that they make."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self.operators: set[str] = set()

    @property
    def fused(self) -> bool:
        return any("_scaled_dot_product_" in name for name in self.operators)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operators.add(func.name())
        results = func(*args, **(kwargs or {}))
        for result in results if isinstance(results, tuple | list) else [results]:
            if isinstance(result, Tensor):
                self.largest = max(self.largest, result.numel())
        return results


@pytest.mark.parametrize("pattern", [None, causal()], ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"num_key_heads": 1}, {"value_dim": 2}, {"rotary": Rotary(4)}], ids=str
)
def test_the_matrix_is_never_written_down(options: dict[str, Any], pattern: Pattern | None) -> None:
    length = 521
    layer = layer_of(dtype=torch.float32, pattern=pattern, **options)
    x = normal(1, length, MODEL_DIM, dtype=torch.float32).requires_grad_()
    with Sizes() as sizes:
        layer(x).sum().backward()
    assert sizes.fused
    assert x.numel() <= sizes.largest < length**2 // 4


def test_nor_is_it_for_a_context() -> None:
    layer = layer_of(dtype=torch.float32, context_dim=CONTEXT_DIM)
    x = normal(1, 521, MODEL_DIM, dtype=torch.float32)
    context = normal(1, 523, CONTEXT_DIM, dtype=torch.float32)
    with Sizes() as sizes:
        layer(x, context).sum().backward()
    assert sizes.fused
    assert x.numel() <= sizes.largest < 521 * 523 // 4


def test_the_measure_sees_a_matrix_that_is_written_down() -> None:
    layer = layer_of(dtype=torch.float32)
    with Sizes() as sizes:
        layer.matrix(normal(1, 521, MODEL_DIM, dtype=torch.float32)).dense()
    assert sizes.largest >= 521**2
