"""What a matrix, its parts, products and rollouts must hold, and how far they may be off."""

from typing import Any

import torch
from hypothesis import strategies
from hypothesis.strategies import DrawFn
from torch import Tensor

from regard import AttentionMatrix
from regard.patterns import everyone
from tests.attention.cases import Case, lse_dtype
from tests.matrix.cases import allowance, assert_within, dense_weights, tiny, tolerance

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SHORT = (1, 2, 7, 31, 67)
NOBODY = ~everyone()


def check(matrix: AttentionMatrix, case: Case, sinks: Tensor | None, more: float = 0.0) -> None:
    """Assert that a matrix holds the weights of a case; `more` is a share that is allowed too."""
    dtype = case.query.dtype
    exact = dense_weights(case, sinks)
    found = matrix.dense()
    assert found.dtype == matrix.dtype == lse_dtype(dtype)
    assert matrix.shape == tuple(exact.shape)
    assert_within(found, exact, allowance(case, dtype, sinks) + more * exact)


def product_allowance(
    weights: Tensor, factor: Tensor, size: int, share: float, dtype: torch.dtype
) -> Tensor:
    """Return how far a product may be off.

    Args:
        weights: the product of the absolute numbers.
        factor: what the matrix is multiplied by.
        size: how many terms are added up.
        share: by what share of itself a weight may be off.
        dtype: the type of query and key.
    """
    eps = torch.finfo(lse_dtype(dtype)).eps
    lost = size * tiny(dtype) * float(factor.abs().max()) if factor.numel() else 0.0
    return weights * (share + (size + 1) * eps) + lost


@strategies.composite
def indices(draw: DrawFn, shape: tuple[int, ...]) -> Any:
    """Draw an index for some of the axes, with or without an ellipsis, bare or in a tuple."""
    count = draw(strategies.integers(0, len(shape)))
    before = draw(strategies.integers(0, count))
    dots = draw(strategies.booleans())
    sizes = shape[:before] + shape[len(shape) - count + before :] if dots else shape[:count]
    items: list[Any] = [draw(one_index(size)) for size in sizes]
    if dots:
        items.insert(before, ...)
    return items[0] if len(items) == 1 and draw(strategies.booleans()) else tuple(items)


@strategies.composite
def one_index(draw: DrawFn, size: int) -> int | slice:
    """Draw a number or a slice for an axis; the slice may be empty or reach beyond the axis."""
    if size and draw(strategies.booleans()):
        return draw(strategies.integers(-size, size - 1))
    edge = strategies.none() | strategies.integers(-size - 2, size + 2)
    return slice(draw(edge), draw(edge), draw(strategies.none() | strategies.integers(1, 5)))


def check_part(
    matrix: AttentionMatrix, where: Any, exact: Tensor, allowed: Tensor
) -> tuple[Any, Tensor, Tensor]:
    """Assert that a part holds what the same part of all weights does, and return it."""
    part, exact, allowed = matrix[where], exact[where], allowed[where]
    if isinstance(part, AttentionMatrix):
        assert part.shape == tuple(exact.shape)
        assert_within(part.dense(), exact, allowed)
    else:
        assert isinstance(part, Tensor)
        assert_within(part, exact, allowed)
    return part, exact, allowed


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return normal numbers, always the same."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(
        dtype
    )


def dense_rollout(
    weights: list[Tensor], tokens: list[int], residual: float, heads: str | Tensor
) -> Tensor:
    """Return the rollout by products of whole matrices, in float64."""
    length = weights[0].shape[-1]
    product = torch.eye(length, dtype=torch.float64)
    for one in weights:
        if isinstance(heads, Tensor):
            mixed = (heads.double()[:, None, None] * one).sum(dim=-3)
        elif heads == "mean":
            mixed = one.mean(dim=-3)
        else:
            mixed = one.amax(dim=-3) if heads == "max" else one.amin(dim=-3)
            total = mixed.sum(dim=-1, keepdim=True)
            mixed = torch.where(total > 0, mixed / total, 0.0)
        identity = torch.eye(length, dtype=torch.float64)
        product = (residual * identity + (1 - residual) * mixed) @ product
    return product[..., tokens, :]


def rollout_tolerance(layers: list[Case], sinks: Tensor | None = None) -> float:
    """Return how far a rollout may be off.

    Rows of a layer sum up to 1 at most, so each layer adds what its weights are off by, thrice
    where rows are scaled by their sum, and the roundings of three sums: over heads, rows and
    columns.
    """
    dtype, length = layers[0].query.dtype, layers[0].query.shape[2]
    share = max(tolerance(case, dtype, sinks) for case in layers)
    terms = 2 * length + layers[0].query.shape[1] + 4
    return len(layers) * (3 * share + terms * torch.finfo(lse_dtype(dtype)).eps)
