"""The log-sum-exp of a matrix and of its parts."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, strategies

from regard import AttentionMatrix, causal
from tests.attention.cases import case_of, lse_dtype
from tests.matrix.cases import (
    allowance,
    assert_within,
    dense_lse,
    dense_weights,
    lse_tolerance,
    matrix_cases,
    matrix_of,
)
from tests.matrix.expected import DTYPES, indices
from tests.strategies import fewer


@pytest.mark.parametrize("dtype", DTYPES)
@fewer
@given(strategies.data())
def test_lse(dtype: torch.dtype, data: strategies.DataObject) -> None:
    case, sinks = data.draw(matrix_cases(dtype=dtype))
    matrix = matrix_of(case, sinks)
    exact, off = dense_lse(case, sinks), lse_tolerance(case, dtype, sinks)
    where = data.draw(indices(matrix.shape[:3]))
    if not isinstance(where, tuple):
        where = (where,)
    if ... in where:
        exact_part, part = exact[where], matrix[(*where, slice(None))]
    else:
        exact_part, part = exact[where], matrix[where]
    if isinstance(part, AttentionMatrix):
        assert_within(part.lse, exact_part, off)
        assert_within(part[..., ::3].lse, exact_part, off)
    found = matrix.lse
    assert found.dtype == lse_dtype(dtype)
    assert_within(found, exact, off)


def test_lse_of_empty_rows() -> None:
    case = case_of(queries=7, keys=5, pattern=causal())
    exact = dense_lse(case)
    assert bool((exact[:, :, :2] == -torch.inf).all())
    assert_within(matrix_of(case).lse, exact, lse_tolerance(case, torch.float64))
    sinks = torch.tensor([-1.0, 0.5, 30.0], dtype=torch.float64)
    found = matrix_of(case, sinks).lse
    assert torch.equal(found[:, :, :2], sinks[:, None].expand(2, 3, 2))


@pytest.mark.pairwise
@pytest.mark.parametrize("bad", [False, True])
@pytest.mark.parametrize("sunk", [False, True])
@pytest.mark.parametrize(
    "look",
    [
        lambda a: a[..., 3:5].dense(),
        lambda a: a[1, 2, 4:9, 100:110].dense(),
        lambda a: a[..., 17],
        lambda a: a[1, 2, 4, ::2],
        lambda a: a.columns([3, 1]),
        lambda a: a[..., :, 5:7] @ torch.ones(2, dtype=torch.float64),
        lambda a: torch.ones(131, dtype=torch.float64) @ a[..., 5:7],
    ],
)
def test_a_few_columns_leave_the_log_sum_exp_alone(
    look: Callable[[AttentionMatrix], object], sunk: bool, bad: bool
) -> None:
    case = case_of(queries=131, pattern=causal())
    if bad:
        case.query[1, 2, 4, 0] = torch.nan
    sinks = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64) if sunk else None
    exact, off = dense_lse(case, sinks), lse_tolerance(case, torch.float64, sinks)
    matrix = matrix_of(case, sinks)
    look(matrix)
    first = matrix.lse
    assert_within(first, exact, off)
    look(matrix)
    torch.testing.assert_close(matrix.lse, first, rtol=0, atol=0, equal_nan=True)
    rows = torch.arange(131) != 4
    allowed = allowance(case, torch.float64, sinks)
    exact = dense_weights(case, sinks)
    assert_within(matrix.dense()[:, :, rows], exact[:, :, rows], allowed[:, :, rows])


def test_what_was_given_and_what_was_returned_is_not_written_to() -> None:
    case = case_of(pattern=causal())
    lse = dense_lse(case)
    lse[:, 1] = torch.nan
    before = lse.clone()
    matrix = matrix_of(case, lse=lse)
    matrix.dense()
    matrix[..., :5].dense()
    assert torch.equal(lse.isnan(), before.isnan())
    assert torch.equal(lse.nan_to_num(0.0), before.nan_to_num(0.0))
    matrix.lse.zero_()
    matrix[0].lse.zero_()
    assert_within(matrix.dense(), dense_weights(case), allowance(case, torch.float64))
