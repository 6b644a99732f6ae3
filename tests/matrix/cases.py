"""Attention matrices for tests, and the weights they must hold, written out from the definition.

How far rounding may carry a weight. With ε the machine epsilon of the dtype in which weights are
computed (float32, or float64 for float64), S the largest sum of absolute products that makes up a
score, its bias included, and L the largest log-sum-exp:

- a score is a sum of key_dim products, scaled and biased: it is off by (key_dim + 4) · S · ε;
- a log-sum-exp is off by as much, by 20 ε for its exponentials, by num_keys · ε for their sum, and
  by 2 · L · ε for its own roundings: as it is found, and where sinks join it;
- their difference is rounded by (S + L) · ε at most, and so are the two steps it may be taken in;
- a weight is the exponential of it, or the product of two exponentials: 40 ε, and 2 ε.

What adds up is a share of the weight: weight · share is allowed, and 1.3 smallest normal numbers
besides, below which weights are 0.
"""

from typing import Any

import torch
from hypothesis import strategies
from hypothesis.strategies import DrawFn
from torch import Tensor

from regard import AttentionMatrix
from regard.attention.call import Attention
from regard.attention.reference import positions_of
from tests.attention.cases import LENGTHS, Case, cases, lse_dtype
from tests.attention.rounding import EXPONENTIAL

BIASES = ("none", "alibi", "relative", "softcap", "tensor")


def dense_scores(case: Case) -> Tensor:
    """Return all scores in float64, [batch, heads, queries, keys]; −inf for a forbidden pair."""
    exact = case.to(torch.float64)
    call = Attention.checked(exact.query, exact.key, exact.value, dropout=0.0, **exact.options)
    with torch.no_grad():
        key = exact.key.repeat_interleave(call.group, dim=1)
        scores = call.scale * exact.query @ key.mT
        batch, head, query_position, key_position = positions_of(call)
        if call.bias is not None:
            scores = call.bias.adjust(scores, batch, head, query_position, key_position)
        allowed = call.pattern.test(batch, query_position, key_position)
        return scores.masked_fill(~allowed, -torch.inf)


def dense_lse(case: Case, sinks: Tensor | None = None) -> Tensor:
    """Return the logarithm of what each row is divided by in float64; −inf for an empty row."""
    return _with_sinks(dense_scores(case), sinks).logsumexp(dim=-1)


def dense_weights(case: Case, sinks: Tensor | None = None) -> Tensor:
    """Return all weights in float64, [batch, heads, queries, keys]; empty rows are zeros.

    Args:
        case: the call of attention.
        sinks: a score for each head that takes its share of every row, [heads].
    """
    scores = dense_scores(case)
    some = (scores != -torch.inf).any(dim=-1, keepdim=True)
    weights = _with_sinks(scores, sinks).softmax(dim=-1)[..., : scores.shape[-1]]
    return torch.where(some, weights, 0.0)


def _with_sinks(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """Return scores with a column for the sinks, which is the last."""
    if sinks is None:
        return scores
    column = sinks.detach().double()[:, None, None].expand(*scores.shape[:3], 1)
    return torch.cat([scores, column], dim=-1)


def tolerance(case: Case, dtype: torch.dtype, sinks: Tensor | None = None) -> float:
    """Return by what share of itself a weight may be off; as no weight exceeds 1, by how much too.

    Args:
        case: the call of attention.
        dtype: the type of query and key; weights are computed in float32 at least.
        sinks: as for `dense_weights`.
    """
    exact = case.to(torch.float64)
    call = Attention.checked(exact.query, exact.key, exact.value, dropout=0.0, **exact.options)
    key = exact.key.repeat_interleave(call.group, dim=1)
    plain = call.scale * exact.query @ key.mT
    terms = abs(call.scale) * exact.query.abs() @ key.abs().mT
    scores = dense_scores(case)
    size = _largest(terms + (scores - plain).abs())
    sums = _largest(dense_lse(case, sinks).abs())
    from_scores = (call.query.shape[-1] + 4) * size
    from_sums = from_scores + EXPONENTIAL + call.num_keys + 2 * sums
    share = from_scores + from_sums + 2 * (size + sums) + 2 * EXPONENTIAL + 2
    return share * torch.finfo(lse_dtype(dtype)).eps


def _largest(values: Tensor) -> float:
    return float(torch.where(values.isfinite(), values, 0.0).max()) if values.numel() else 0.0


def lse_tolerance(case: Case, dtype: torch.dtype, sinks: Tensor | None = None) -> float:
    """Return how far a log-sum-exp may be off: no more than by the share of a weight."""
    return tolerance(case, dtype, sinks)


def tiny(dtype: torch.dtype) -> float:
    """Return below what a weight that is computed from the dtype may be 0.

    Numbers lose digits below the smallest normal number, and `exponential_` returns 0 up to e^0.251
    times that, which a score that is rounded may exceed or not.
    """
    return 1.3 * torch.finfo(lse_dtype(dtype)).smallest_normal


def allowance(case: Case, dtype: torch.dtype, sinks: Tensor | None = None) -> Tensor:
    """Return how far each weight may be off, [batch, heads, queries, keys]."""
    return dense_weights(case, sinks) * tolerance(case, dtype, sinks) + tiny(dtype)


def assert_within(found: Tensor, exact: Tensor, allowed: Tensor | float) -> None:
    """Assert that numbers differ from the exact ones by no more than they may; NaN is the same."""
    assert found.shape == exact.shape, f"{list(found.shape)} is not {list(exact.shape)}"
    found, exact = found.double(), exact.double()
    allowed = torch.as_tensor(allowed, dtype=torch.float64).expand_as(exact)
    same = (found == exact) | (found.isnan() & exact.isnan()) | ((found - exact).abs() <= allowed)
    assert bool(same.all()), (
        f"{int((~same).sum())} of {same.numel()} numbers are off: the first is "
        f"{float(found[~same][0])} instead of {float(exact[~same][0])}, "
        f"where {float(allowed[~same][0]):.3g} is allowed"
    )


def matrix_of(case: Case, sinks: Tensor | None = None, **more: Any) -> AttentionMatrix:
    """Return the matrix of a case; more arguments, such as lse, go to it."""
    return AttentionMatrix(case.query, case.key, sinks=sinks, **case.options, **more)


@strategies.composite
def matrix_cases(
    draw: DrawFn,
    *,
    dtype: torch.dtype = torch.float64,
    biased: tuple[str, ...] = BIASES,
    lengths: tuple[int, ...] = LENGTHS,
    sunk: bool = True,
) -> tuple[Case, Tensor | None]:
    """Draw a case, and sinks of the same dtype or none.

    Args:
        draw: given by hypothesis.
        dtype: the type of query and key.
        biased: which kinds of bias there may be.
        lengths: how many queries and keys there may be.
        sunk: whether there may be sinks.
    """
    case = draw(cases(dtype=dtype, biased=biased, lengths=lengths))
    size = draw(strategies.sampled_from([None, 1.0, 20.0] if sunk else [None]))
    if size is None:
        return case, None
    generator = torch.Generator().manual_seed(draw(strategies.integers(0, 999)))
    heads = case.query.shape[1]
    return case, (size * torch.randn(heads, generator=generator, dtype=torch.float64)).to(dtype)
