"""Matrices all of whose weights are known, for reductions to be held against."""

from dataclasses import dataclass, replace
from math import log
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from regard.attention.call import Attention
from regard.patterns import Pattern
from tests.attention.cases import Case, lse_dtype
from tests.matrix.cases import dense_scores, dense_weights, matrix_cases, tiny, tolerance

DTYPES = [torch.float32, torch.float64]


@dataclass(frozen=True)
class Known:
    """A matrix written out, or a part of it.

    Attributes:
        weights: [batch, heads, queries, keys] in float64.
        allowed: who may look at whom, of the same shape.
        batch: the indices of the sequences in the whole matrix.
        heads: the indices of its heads.
        queries: the indices of its rows.
        keys: the indices of its columns, which are their positions.
        where: the positions of its rows.
        whole: batch and keys of the whole matrix.
        share: by which share a weight of the matrix that is tested may be off.
        lost: how much of a row or a column is too small for the dtype.
    """

    weights: Tensor
    allowed: Tensor
    batch: Tensor
    heads: Tensor
    queries: Tensor
    keys: Tensor
    where: Tensor
    whole: tuple[int, int]
    share: float
    lost: float

    def part(self, *slices: slice) -> "Known":
        """Return what slices of batch, heads, queries and keys leave over."""
        batch, heads, queries, keys = slices
        return replace(
            self,
            weights=self.weights[slices],
            allowed=self.allowed[slices],
            batch=self.batch[batch],
            heads=self.heads[heads],
            queries=self.queries[queries],
            keys=self.keys[keys],
            where=self.where[queries],
        )

    def test(self, pattern: Pattern) -> Tensor:
        """Say which pairs a pattern allows, [batch, 1, queries, keys]."""
        batch = self.batch[:, None, None, None]
        found = pattern.test(batch, self.where[:, None], self.keys)
        return found.expand(len(batch), 1, len(self.where), len(self.keys))


def known_of(case: Case, sinks: Tensor | None = None) -> Known:
    """Write out the matrix of a case."""
    weights = dense_weights(case, sinks)
    batch, heads, queries, keys = (torch.arange(size) for size in weights.shape)
    call = Attention.checked(case.query, case.key, case.value, dropout=0.0, **case.options)
    sums = len(queries) + 2 * len(keys)
    eps = torch.finfo(lse_dtype(case.query.dtype)).eps
    smallest = tiny(case.query.dtype)
    return Known(
        weights=weights,
        allowed=dense_scores(case) > -torch.inf,
        batch=batch,
        heads=heads,
        queries=queries,
        keys=keys,
        where=call.query_positions,
        whole=(len(batch), len(keys)),
        share=tolerance(case, case.query.dtype, sinks) + sums * eps,
        # A number below the smallest normal one, times its logarithm, in each place.
        lost=-smallest * log(smallest) * len(keys) * len(queries),
    )


@st.composite
def matrices(draw: st.DrawFn, **options: Any) -> tuple[Case, Tensor | None]:
    """Draw a case in one of the dtypes, and sinks for it or none."""
    return draw(matrix_cases(dtype=draw(st.sampled_from(DTYPES)), **options))


def assert_near(found: Tensor, expected: Tensor, allowance: Tensor | float) -> None:
    """Assert that numbers have a shape, and differ by no more than they may; NaN is NaN."""
    assert found.numel() == expected.numel(), f"{list(found.shape)} is not {list(expected.shape)}"
    found = found.double().reshape(expected.shape)
    assert torch.equal(found.isnan(), expected.isnan())
    off = ((found - expected).abs() > allowance) & ~expected.isnan()
    assert not bool(off.any()), (
        f"{int(off.sum())} of {off.numel()} numbers are off, by up to "
        f"{float((found - expected).abs()[off].max()):.3g}"
    )
