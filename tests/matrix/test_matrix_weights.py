"""All weights of a matrix, computed or known, held against the definition in float64."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies
from torch import Tensor

import regard
from regard import AttentionMatrix, causal, window
from regard.patterns import Pattern
from tests.attention.cases import case_of, lse_dtype
from tests.attention.rounding import allowances
from tests.matrix.cases import (
    assert_within,
    dense_lse,
    dense_weights,
    matrix_cases,
    matrix_of,
    tolerance,
)
from tests.matrix.expected import (
    DTYPES,
    NOBODY,
    SHORT,
    check,
    check_part,
    indices,
    normal,
    product_allowance,
)
from tests.strategies import fewer

# All weights


@pytest.mark.parametrize("dtype", DTYPES)
@given(strategies.data())
def test_dense_is_the_softmax(dtype: torch.dtype, data: strategies.DataObject) -> None:
    case, sinks = data.draw(matrix_cases(dtype=dtype))
    check(matrix_of(case, sinks), case, sinks)


def test_an_array_is_dense() -> None:
    case = case_of(group=2, pattern=causal())
    head = matrix_of(case)[0, 1]
    np.testing.assert_allclose(np.asarray(head), dense_weights(case)[0, 1], rtol=0, atol=1e-14)
    assert np.asarray(head, dtype=np.float32).dtype == np.float32
    assert np.asarray(head).shape == head.shape


@pytest.mark.parametrize("dtype", DTYPES)
@fewer
@given(strategies.data())
def test_dense_with_the_log_sum_exp_of_attend(
    dtype: torch.dtype, data: strategies.DataObject
) -> None:
    case, sinks = data.draw(matrix_cases(dtype=dtype))
    _, lse = regard.attend_with_lse(case.query, case.key, case.value, **case.options)
    off = float(allowances(case, dtype)["lse"].max())
    if sinks is not None:
        lse = torch.logaddexp(lse, sinks.to(lse.dtype)[:, None])
    check(matrix_of(case, sinks, lse=lse), case, sinks, more=off)


def test_a_given_log_sum_exp_is_what_rows_are_divided_by() -> None:
    case = case_of(group=2, pattern=causal())
    sinks = torch.linspace(-1, 2, 6, dtype=torch.float64)
    lse = dense_lse(case, sinks) + torch.log(torch.tensor(2.0, dtype=torch.float64))
    share = tolerance(case, torch.float64, sinks)
    exact = dense_weights(case, sinks) / 2
    for given_sinks in (sinks, None):
        found = matrix_of(case, given_sinks, lse=lse).dense()
        assert_within(found, exact, exact * share)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 1, 7), (3, 2, 7, 1)])
def test_one_token(shape: tuple[int, int, int, int]) -> None:
    batch, heads, queries, keys = shape
    case = case_of(batch=batch, heads=heads, queries=queries, keys=keys)
    check(matrix_of(case), case, None)
    one = matrix_of(case_of(batch=1, heads=1, queries=1, keys=1))
    assert_within(one[0, 0, 0, 0], torch.ones((), dtype=torch.float64), tolerance(case, one.dtype))


def test_a_pattern_that_only_says_test() -> None:
    class Even(Pattern):
        def test(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (query + key) % 2 == 0

    case = case_of(queries=131, pattern=Even())
    check(matrix_of(case), case, None)


def test_large_scores_do_not_overflow() -> None:
    case = case_of(dtype=torch.float32)
    case = replace(case, query=1e4 * case.query)
    found = matrix_of(case).dense()
    best = dense_weights(case).argmax(dim=-1)
    assert torch.equal(found.argmax(dim=-1), best)
    assert_within(found.sum(dim=-1), torch.ones(2, 3, 37), 37 * torch.finfo(torch.float32).eps)


def test_nothing_carries_gradients() -> None:
    case = case_of(group=2, queries=13)
    bias = torch.randn(1, 6, 13, 13, dtype=torch.float64, requires_grad=True)
    tensors = (case.query.requires_grad_(), case.key.requires_grad_())
    sinks = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    values = case.value.requires_grad_()
    lse = dense_lse(case, sinks).requires_grad_()
    for more in ({}, {"lse": lse}):
        matrix = AttentionMatrix(*tensors, bias=bias, sinks=sinks, **more)
        vectors = torch.randn(3, 13, dtype=torch.float64, requires_grad=True)
        results = [matrix.lse, matrix.dense(), matrix[0, 0, 3], matrix @ values, vectors @ matrix]
        results += [matrix.rows([3]), matrix.columns([3]), regard.rollout([matrix], tokens=[3])]
        assert not any(x.requires_grad for x in results)


def test_what_a_matrix_says_of_itself() -> None:
    case = case_of(batch=2, heads=3, queries=5, keys=7, pattern=causal(), dtype=torch.bfloat16)
    matrix = matrix_of(case)
    assert matrix.axes == ("batch", "heads", "queries", "keys")
    assert matrix.shape == (2, 3, 5, 7)
    assert matrix.dtype == torch.float32
    assert matrix.device == torch.device("cpu")
    assert matrix.pattern == causal()
    assert repr(matrix) == (
        "AttentionMatrix(2 batch × 3 heads × 5 queries × 7 keys, float32, causal())"
    )
    assert repr(matrix[1, :, 2:4]) == (
        "AttentionMatrix(3 heads × 2 queries × 7 keys, float32, causal())"
    )


# Weights that are known


@fewer
@given(strategies.data())
def test_from_weights(data: strategies.DataObject) -> None:
    case, _ = data.draw(matrix_cases(lengths=SHORT, biased=("none",), sunk=False))
    exact = dense_weights(case)
    matrix: Any = AttentionMatrix.from_weights(exact, pattern=case.pattern, positions=case.where)
    assert torch.equal(matrix.dense(), exact)
    for _ in range(2):
        where = data.draw(indices(matrix.shape))
        matrix, exact, _ = check_part(matrix, where, exact, torch.zeros_like(exact))
        if isinstance(matrix, Tensor):
            break


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_rows_and_columns_from_weights(dtype: torch.dtype) -> None:
    case = case_of(heads=2, group=3, keys=41, pattern=causal())
    weights = dense_weights(case).to(dtype)
    exact = weights.double()
    matrix = AttentionMatrix.from_weights(weights, pattern=causal())
    assert matrix.dtype == lse_dtype(dtype)
    assert matrix.pattern == causal()
    assert torch.equal(matrix.dense().double(), exact)
    assert torch.equal(matrix.rows([3, -1, 3]).double(), exact[:, :, [3, -1, 3]])
    assert torch.equal(matrix.columns([3, -1, 3]).double(), exact[..., [3, -1, 3]])
    values, vectors = normal(2, 3, 41, 5), normal(6, 7, 37)
    repeated = values.repeat_interleave(2, dim=1)
    # A value is rounded too, to the type of the weights.
    share = torch.finfo(matrix.dtype).eps
    allowed = product_allowance(exact @ repeated.abs(), values, 41, share, dtype)
    assert_within(matrix @ values, exact @ repeated, allowed)
    allowed = product_allowance(vectors.abs() @ exact, vectors, 37, share, dtype)
    assert_within(vectors @ matrix, vectors @ exact, allowed)


def test_from_weights_knows_where_its_queries_stand() -> None:
    where = torch.tensor([5, 130, 2, 99])
    weights = torch.rand(1, 2, 4, 131) * (torch.arange(131) <= where[:, None])
    matrix = AttentionMatrix.from_weights(weights, pattern=causal(), positions=where)
    assert torch.equal(matrix.dense(), weights)
    # By default the last query stands at the last key.
    matrix = AttentionMatrix.from_weights(weights[:, :, 1:2], pattern=causal())
    assert torch.equal(matrix.dense(), weights[:, :, 1:2])


@pytest.mark.parametrize("length", [131, 1031])
@pytest.mark.parametrize("pattern", [causal(), NOBODY, window(before=3, after=3)])
def test_weights_that_the_pattern_forbids_are_all_kept_or_all_zero(
    pattern: Pattern, length: int
) -> None:
    weights = torch.rand(1, 2, length, length) / 2 + 0.5
    found = AttentionMatrix.from_weights(weights, pattern=pattern).dense()
    allowed = pattern.allows(range(length), range(length))
    kept, gone = torch.equal(found, weights), torch.equal(found, weights * allowed)
    assert kept or gone, f"{int((found == 0).sum())} of {int((~allowed).sum()) * 2} are zero"


def test_weights_of_one_head() -> None:
    weights = torch.randn(5, 7, generator=torch.Generator().manual_seed(0)).softmax(dim=-1)
    pattern = causal()
    one = AttentionMatrix.from_weights(weights, pattern=pattern)
    four = AttentionMatrix.from_weights(weights[None, None], pattern=pattern)[0, 0]
    assert one.axes == ("queries", "keys")
    assert torch.equal(one.dense(), four.dense())
    assert torch.equal(one.received().queries, four.received().queries)
    assert torch.equal(one[4], weights[4])
    weights[0, 0] = 0.5
    with pytest.raises(RuntimeError, match="weights was modified in place"):
        one.dense()
