"""The attention matrix as a value: every part of it held against all weights in float64."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies
from hypothesis.strategies import DrawFn
from torch import Tensor

import regard
from regard import AttentionMatrix, causal, padding, strided, window
from regard.patterns import Pattern, everyone
from regard.patterns.descent import KEY_BLOCK
from regard.positions import alibi, softcap
from tests.attention.cases import Case, case_of, lse_dtype
from tests.attention.rounding import allowances
from tests.matrix.cases import (
    allowance,
    assert_within,
    dense_lse,
    dense_weights,
    lse_tolerance,
    matrix_cases,
    matrix_of,
    tiny,
    tolerance,
)

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SHORT = (1, 2, 7, 31, 67)
NOBODY = ~everyone()
CHUNKS = (64, 64 * 7, 64 * 101)
"""Pairs of a chunk, in place of many more."""


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


# All weights


@pytest.mark.parametrize("dtype", DTYPES)
@given(strategies.data())
def test_dense_is_the_softmax(dtype: torch.dtype, data: strategies.DataObject) -> None:
    case, sinks = data.draw(matrix_cases(dtype=dtype))
    check(matrix_of(case, sinks), case, sinks)


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=15)
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


# Parts


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


@settings(max_examples=50)
@given(strategies.data())
def test_every_part_is_that_part_of_all(data: strategies.DataObject) -> None:
    case, sinks = data.draw(matrix_cases(lengths=SHORT))
    matrix: Any = matrix_of(case, sinks)
    if data.draw(strategies.booleans()):
        _ = matrix.lse
    exact = dense_weights(case, sinks)
    allowed = allowance(case, torch.float64, sinks)
    for _ in range(3):
        where = data.draw(indices(matrix.shape))
        axes = matrix.axes
        matrix, exact, allowed = check_part(matrix, where, exact, allowed)
        if isinstance(matrix, Tensor):
            assert exact.dim() < len(axes)
            break
        assert set(matrix.axes) >= {"queries", "keys"}


@pytest.mark.parametrize(
    ("where", "axes"),
    [
        (slice(None), ("batch", "heads", "queries", "keys")),
        (..., ("batch", "heads", "queries", "keys")),
        ((), ("batch", "heads", "queries", "keys")),
        (1, ("heads", "queries", "keys")),
        (-1, ("heads", "queries", "keys")),
        (np.int64(1), ("heads", "queries", "keys")),
        (torch.tensor(1), ("heads", "queries", "keys")),
        ((slice(None), 4), ("batch", "queries", "keys")),
        ((0, 5), ("queries", "keys")),
        ((0, -6, slice(3, 30, 4), slice(-20, None, 3)), ("queries", "keys")),
        ((..., slice(None, None, 7)), ("batch", "heads", "queries", "keys")),
        ((slice(1, 1), ..., slice(40, 50)), ("batch", "heads", "queries", "keys")),
        ((0, 0, 36), None),
        ((..., 36), None),
        ((..., -37, slice(None)), None),
        ((0, 0, -1, -1), None),
        ((slice(None), slice(1, 5, 2), 3, slice(None, None, 2)), None),
    ],
)
def test_a_part_is_lazy_as_long_as_queries_and_keys_are_axes(
    where: Any, axes: tuple[str, ...] | None
) -> None:
    case = case_of(heads=2, group=3, keys=41, pattern=causal())
    allowed = allowance(case, torch.float64)
    part, *_ = check_part(matrix_of(case), where, dense_weights(case), allowed)
    assert isinstance(part, Tensor if axes is None else AttentionMatrix)
    if axes is not None:
        assert part.axes == axes


@pytest.mark.parametrize("listed", [[5], [36, 0, 17], [3, 3, -1, 3], [-37, 36, -2, -2], range(37)])
@pytest.mark.parametrize("kind", [list, torch.tensor])
@pytest.mark.parametrize("where", [(), 1, (slice(None), -2), (1, 3, slice(None), slice(2, 39))])
def test_rows(listed: Any, kind: Callable[..., Any], where: Any) -> None:
    case = case_of(heads=2, group=3, keys=41, pattern=causal() & window(before=11), bias=alibi(6))
    exact, allowed = dense_weights(case)[where], allowance(case, torch.float64)[where]
    places = torch.tensor(list(listed))
    found = matrix_of(case)[where].rows(kind(list(listed)))
    assert_within(found, exact[..., places, :], allowed[..., places, :])


@pytest.mark.parametrize("listed", [[5], [36, 0, 17], [3, 3, -1, 3], [-37, 36, -2, -2], range(37)])
@pytest.mark.parametrize("kind", [list, torch.tensor])
@pytest.mark.parametrize("where", [(), 1, (slice(None), -2), (1, 3, slice(2, 39))])
def test_columns(listed: Any, kind: Callable[..., Any], where: Any) -> None:
    case = case_of(
        heads=2, group=3, queries=41, keys=37, where=-4, pattern=strided(3) | window(before=2)
    )
    exact, allowed = dense_weights(case)[where], allowance(case, torch.float64)[where]
    places = torch.tensor(list(listed))
    found = matrix_of(case)[where].columns(kind(list(listed)))
    assert_within(found, exact[..., places], allowed[..., places])


@settings(max_examples=25)
@given(strategies.data())
def test_rows_and_columns_of_any_matrix(data: strategies.DataObject) -> None:
    case, sinks = data.draw(matrix_cases(lengths=SHORT))
    matrix = matrix_of(case, sinks)
    exact, allowed = dense_weights(case, sinks), allowance(case, torch.float64, sinks)
    queries, keys = exact.shape[2:]
    listed = strategies.lists
    rows = torch.tensor(data.draw(listed(strategies.integers(-queries, queries - 1), min_size=1)))
    some = torch.tensor(data.draw(listed(strategies.integers(-keys, keys - 1), min_size=1)))
    assert_within(matrix.rows(rows), exact[:, :, rows], allowed[:, :, rows])
    assert_within(matrix.columns(some), exact[..., some], allowed[..., some])
    assert_within(matrix.dense(), exact, allowed)


def test_no_rows_and_no_columns() -> None:
    matrix = matrix_of(case_of(queries=5, keys=7))
    none = torch.tensor([], dtype=torch.long)
    assert matrix.rows(none).shape == (2, 3, 0, 7)
    assert matrix.columns(none).shape == (2, 3, 5, 0)


@pytest.mark.parametrize("name", ["rows", "columns"])
def test_an_empty_list_is_a_list_of_whole_numbers(name: str) -> None:
    found = getattr(matrix_of(case_of(queries=5, keys=7)), name)([])
    assert found.shape == ((2, 3, 0, 7) if name == "rows" else (2, 3, 5, 0))


# The log-sum-exp


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=15)
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


# Products

LOOKS: dict[str, Any] = {
    "all": (),
    "one sequence": 1,
    "one head": (slice(None), -2),
    "one matrix": (1, 3),
    "a part": (slice(None), slice(1, 5), slice(3, 30), slice(2, 39, 3)),
}


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return normal numbers, always the same."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(
        dtype
    )


def forms(shape: tuple[int, ...], last: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the shapes that broadcast to [*shape, *last]: fewer axes, and axes of size 1."""
    found = [shape[i:] + last for i in range(len(shape) + 1)]
    found += [(1,) * len(shape) + last]
    found += [(*shape[:i], 1, *shape[i + 1 :], *last) for i in range(len(shape))]
    return found


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("look", LOOKS)
def test_products_with_values(look: str, dtype: torch.dtype) -> None:
    case = case_of(heads=2, group=3, queries=37, keys=41, pattern=causal(), dtype=dtype)
    where = LOOKS[look]
    part, exact = matrix_of(case)[where], dense_weights(case)[where]
    share, keys = tolerance(case, dtype), exact.shape[-1]
    for form in [(keys,), *forms(tuple(exact.shape[:-2]), (keys, 5))]:
        values = normal(*form, dtype=dtype)
        found = part @ values
        assert found.dtype == part.dtype
        bound = exact @ values.double().abs()
        allowed = product_allowance(bound, values, keys, share, dtype)
        assert_within(found, exact @ values.double(), allowed)


@pytest.mark.parametrize("where", [(), 1, (slice(None), slice(2, 6)), (..., slice(None, 7))])
@pytest.mark.parametrize("value_heads", [1, 2, 3])
def test_products_with_values_of_fewer_heads(where: Any, value_heads: int) -> None:
    case = case_of(heads=2, group=3, keys=41, pattern=causal())
    part, exact = matrix_of(case)[where], dense_weights(case)[where]
    heads, keys = part.shape[-3], part.shape[-1]
    if heads % value_heads:
        with pytest.raises(ValueError, match="values must have the shape"):
            part @ normal(*part.shape[:-3], value_heads, keys, 5)
        return
    values = normal(*part.shape[:-3], value_heads, keys, 5)
    repeated = values.repeat_interleave(heads // value_heads, dim=-3)
    share = tolerance(case, torch.float64)
    allowed = product_allowance(exact @ repeated.abs(), values, keys, share, torch.float64)
    assert_within(part @ values, exact @ repeated, allowed)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("look", LOOKS)
def test_products_with_vectors(look: str, dtype: torch.dtype) -> None:
    case = case_of(heads=2, group=3, queries=37, keys=41, pattern=causal(), dtype=dtype)
    where = LOOKS[look]
    part, exact = matrix_of(case)[where], dense_weights(case)[where]
    share, queries = tolerance(case, dtype), exact.shape[-2]
    for form in [(queries,), *forms(tuple(exact.shape[:-2]), (5, queries))]:
        vectors = normal(*form, dtype=dtype)
        found = vectors @ part
        assert found.dtype == part.dtype
        bound = vectors.double().abs() @ exact
        allowed = product_allowance(bound, vectors, queries, share, dtype)
        assert_within(found, vectors.double() @ exact, allowed)


@settings(max_examples=25)
@given(matrix_cases())
def test_products_of_any_matrix(drawn: tuple[Case, Tensor | None]) -> None:
    case, sinks = drawn
    matrix, exact = matrix_of(case, sinks), dense_weights(case, sinks)
    share = tolerance(case, torch.float64, sinks)
    values = case.value.repeat_interleave(exact.shape[1] // case.value.shape[1], dim=1)
    bound = exact @ values.abs()
    allowed = product_allowance(bound, values, exact.shape[3], share, torch.float64)
    assert_within(matrix @ case.value, exact @ values, allowed)
    vectors = case.grad.mT
    bound = vectors.abs() @ exact
    allowed = product_allowance(bound, vectors, exact.shape[2], share, torch.float64)
    assert_within(vectors @ matrix, vectors @ exact, allowed)


def test_the_product_with_values_is_the_output_of_attend() -> None:
    case = case_of(heads=2, group=3, pattern=causal() & window(before=5), bias=softcap(2.0))
    found = matrix_of(case) @ case.value
    exact = regard.attend(case.query, case.key, case.value, backend="reference", **case.options)
    repeated = case.value.repeat_interleave(3, dim=1).abs()
    share = tolerance(case, torch.float64)
    bound = dense_weights(case) @ repeated
    # The reference rounds as often.
    assert_within(found, exact, 2 * product_allowance(bound, repeated, 37, share, torch.float64))


# What isn't computed


class Asked:
    """A bias that changes nothing and remembers which pairs it was asked about."""

    additive = True
    relative = True
    batch_size = None
    num_heads = None
    tensors: tuple[Tensor, ...] = ()

    def __init__(self) -> None:
        self.pairs = 0
        self.farthest = 0
        self.keys: set[int] = set()

    def adjust(
        self, scores: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor
    ) -> Tensor:
        self.pairs += scores.numel()
        self.farthest = max(self.farthest, int((query - key).abs().max()))
        self.keys.update(key.flatten().tolist())
        return scores


def test_tiles_that_nobody_may_look_at_are_not_computed() -> None:
    length, before = 8209, 61
    asked = Asked()
    case = case_of(batch=1, heads=1, queries=length, dtype=torch.float32)
    pattern = causal() & window(before=before)
    matrix = AttentionMatrix(case.query, case.key, pattern=pattern, bias=asked)
    found = matrix @ torch.ones(length)
    assert_within(found, torch.ones(1, 1, length), tolerance(case_of(queries=97), torch.float32))
    # A strip of 512 rows at most needs as many columns, those before, and whole blocks of keys.
    widest = 512 + before + 2 * KEY_BLOCK
    assert asked.pairs <= length * widest
    assert length * widest < length**2 / 10
    assert asked.farthest < widest


def test_one_row_and_one_column_are_computed_alone() -> None:
    length = 509
    case = case_of(batch=2, heads=3, queries=length, pattern=causal() & window(before=7))
    exact, allowed = dense_weights(case)[1, 2], allowance(case, torch.float64)[1, 2]
    asked = Asked()
    matrix = matrix_of(replace(case, bias=asked), lse=dense_lse(case))
    row = matrix[1, 2, 300]
    assert asked.pairs <= 8 + 2 * KEY_BLOCK
    assert asked.keys >= set(range(293, 301))
    assert_within(row, exact[300], allowed[300])
    asked.pairs, asked.keys = 0, set()
    column = matrix[1, 2, :, 300]
    assert asked.pairs <= length
    assert asked.keys == {300}
    assert_within(column, exact[:, 300], allowed[:, 300])


def test_what_is_lazy_computes_nothing() -> None:
    asked = Asked()
    matrix = matrix_of(case_of(bias=asked))
    _ = matrix[1, :, 3:5, ::2][0], matrix.shape, repr(matrix), matrix[..., :7].axes
    assert asked.pairs == 0


def test_the_log_sum_exp_is_computed_once() -> None:
    asked = Asked()
    matrix = matrix_of(case_of(batch=2, heads=3, queries=37, bias=asked))
    _ = matrix.lse
    assert asked.pairs == 2 * 3 * 37 * 37
    _ = matrix.lse, matrix[0].lse
    assert asked.pairs == 2 * 3 * 37 * 37


@settings(max_examples=15)
@given(strategies.data())
def test_how_it_is_cut_does_not_matter(data: strategies.DataObject) -> None:
    case, sinks = data.draw(matrix_cases())
    exact, allowed = dense_weights(case, sinks), allowance(case, torch.float64, sinks)
    values, share = case.value, tolerance(case, torch.float64, sinks)
    repeated = values.repeat_interleave(exact.shape[1] // values.shape[1], dim=1)
    vectors = case.grad.mT
    usual = matrix_of(case, sinks) @ values, vectors @ matrix_of(case, sinks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.matrix.tiles._CPU_CHUNK", data.draw(strategies.sampled_from(CHUNKS)))
        patch.setattr("regard.matrix.tiles._ROWS", 5)
        assert_within(matrix_of(case, sinks).dense(), exact, allowed)
        assert_within(matrix_of(case, sinks).lse, dense_lse(case, sinks), share)
        assert_within(matrix_of(case, sinks)[..., ::3].dense(), exact[..., ::3], allowed[..., ::3])
        products = matrix_of(case, sinks) @ values, vectors @ matrix_of(case, sinks)
    # Both round.
    bound = exact @ repeated.abs()
    off = 2 * product_allowance(bound, values, exact.shape[3], share, torch.float64)
    assert_within(products[0], usual[0], off)
    bound = vectors.abs() @ exact
    off = 2 * product_allowance(bound, vectors, exact.shape[2], share, torch.float64)
    assert_within(products[1], usual[1], off)


# Weights that are known


@settings(max_examples=25)
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


# What is defined though it looks as if it were not


@pytest.mark.parametrize("bias", [None, alibi(3)])
@pytest.mark.parametrize("pattern", [everyone(), causal() & window(before=5)])
def test_nan_in_a_query_stays_in_its_row(pattern: Pattern, bias: object) -> None:
    case = case_of(queries=131, pattern=pattern, bias=bias)
    clean = dense_weights(case)
    allowed = allowance(case, torch.float64)
    case.query[1, 2, 70, 3] = torch.nan
    matrix = matrix_of(case)
    found = matrix.dense()
    may = pattern.allows([70], range(131))[0]
    assert bool(found[1, 2, 70, may].isnan().all())
    assert bool(matrix.lse[1, 2, 70].isnan())
    found[1, 2, 70] = clean[1, 2, 70]
    assert_within(found, clean, allowed)
    row = matrix[1, 2, 69]
    assert_within(row, clean[1, 2, 69], allowed[1, 2, 69])


@pytest.mark.parametrize(
    "look",
    [lambda a: a.dense(), lambda a: a[..., :17].dense()],
    ids=["all", "some columns"],
)
def test_nan_in_a_query_leaves_a_given_log_sum_exp_alone(
    look: Callable[[AttentionMatrix], Tensor],
) -> None:
    # Nobody but the given numbers knows of these sinks.
    sinks = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    case = case_of()
    exact, lse = dense_weights(case, sinks), dense_lse(case, sinks)
    allowed = allowance(case, torch.float64, sinks)
    case.query[1, 2, 4] = lse[1, 2, 4] = torch.nan
    matrix = matrix_of(case, lse=lse)
    found = look(matrix)
    width = found.shape[-1]
    found[1, 2, 4] = exact[1, 2, 4, :width]
    assert_within(found, exact[..., :width], allowed[..., :width])
    assert_within(matrix.lse, lse, 0.0)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    "pattern", [padding([100, 131]), ~window(before=0, after=0) & padding([100, 131])]
)
def test_a_key_that_is_forbidden_to_all_does_no_harm(
    pattern: Pattern, biased: bool, bad: float
) -> None:
    case = case_of(queries=131, pattern=pattern, bias=alibi(3) if biased else None)
    clean, allowed = dense_weights(case), allowance(case, torch.float64)
    lse, off = dense_lse(case), lse_tolerance(case, torch.float64)
    case.key[0, 1, 100:] = bad
    matrix = matrix_of(case)
    assert_within(matrix[..., 99:105].dense(), clean[..., 99:105], allowed[..., 99:105])
    assert_within(matrix_of(case).dense(), clean, allowed)
    assert_within(matrix.lse, lse, off)


def test_nan_in_a_query_that_may_look_at_nothing() -> None:
    case = case_of(queries=7, keys=5, pattern=causal())
    case.query[0, 0, 0] = torch.nan
    assert not bool(matrix_of(case).dense()[0, 0, 0].any())
    assert_within(matrix_of(case).lse, dense_lse(case), lse_tolerance(case, torch.float64))


@pytest.mark.parametrize("sinks", [None, torch.zeros(3, dtype=torch.float64)])
@pytest.mark.parametrize("keys", [37, 1031])
def test_empty_rows_are_zeros(keys: int, sinks: Tensor | None) -> None:
    case = case_of(queries=37, keys=keys, pattern=NOBODY)
    matrix = matrix_of(case, sinks)
    assert torch.equal(matrix.dense(), torch.zeros(2, 3, 37, keys, dtype=torch.float64))
    assert not bool((matrix @ normal(keys, 2)).any())
    assert not bool((normal(2, 37) @ matrix).any())
    assert not bool(matrix[..., :5].dense().any())
    lowest = torch.full((2, 3, 37), -torch.inf if sinks is None else 0.0, dtype=torch.float64)
    assert torch.equal(matrix.lse, lowest)
    assert torch.equal(matrix_of(case, sinks).lse, lowest)


def test_rows_that_a_bias_empties() -> None:
    bias = normal(1, 1, 37, 37)
    bias[:, :, 5] = -torch.inf
    bias[:, :, 7:, 3:] = -torch.inf
    case = case_of(bias=bias)
    check(matrix_of(case), case, None)
    assert not bool(matrix_of(case)[:, :, 5].any())
    assert bool((matrix_of(case).lse[:, :, 5] == -torch.inf).all())


@pytest.mark.parametrize("known", [False, True])
def test_a_mask_of_lowest_numbers(known: bool) -> None:
    # Many write a mask with the lowest number there is in place of −inf.
    bias = torch.zeros(1, 1, 37, 37).masked_fill(
        ~causal().allows(range(37), range(37)), torch.finfo(torch.float32).min
    )
    bias[:, :, 5] = torch.finfo(torch.float32).min
    case = case_of(dtype=torch.float32, bias=bias)
    _, lse = regard.attend_with_lse(case.query, case.key, case.value, bias=bias)
    matrix = matrix_of(case, lse=lse if known else None)
    found = matrix.dense()
    # The row in which all have it looks at nothing, or at all alike.
    row, found[:, :, 5] = found[:, :, 5].clone(), 0.0
    sums = row.sum(dim=-1)
    off = 38 * torch.finfo(torch.float32).eps
    assert bool((row == 0).all()) or bool(((sums - 1).abs() <= off).all())
    assert bool((matrix @ case.value).isfinite().all())
    may = causal().allows(range(37), range(37))
    plain = replace(case, bias=None, pattern=causal())
    exact, allowed = dense_weights(plain), allowance(plain, torch.float32)
    more = float(allowances(plain, torch.float32)["lse"].max()) if known else 0.0
    exact[:, :, 5] = 0.0
    assert_within(found, exact, allowed + more * exact)
    assert not bool(found[..., ~may].any())


def test_keys_of_no_size_are_looked_at_alike() -> None:
    case = case_of(heads=3, group=2, queries=5, keys=7, key_dim=0)
    exact = torch.full((2, 6, 5, 7), 1 / 7, dtype=torch.float64)
    assert_within(matrix_of(case).dense(), exact, tolerance(case, torch.float64))


@pytest.mark.parametrize("group", [1, 3])
def test_tensors_that_do_not_lie_in_one_piece(group: int) -> None:
    case = case_of(heads=2, group=group, keys=41, pattern=causal())
    query = case.query.transpose(1, 2).contiguous().transpose(1, 2)
    case = replace(case, query=query, key=case.key[:1].expand(2, -1, -1, -1))
    check(matrix_of(case), case, None)
    part = (slice(None), slice(1, None), slice(3, 30, 2))
    allowed = allowance(case, torch.float64)
    check_part(matrix_of(case), part, dense_weights(case), allowed)


@pytest.mark.parametrize("threads", [2, 8])
def test_several_threads(threads: int) -> None:
    case = case_of(heads=2, group=3, queries=131, pattern=causal(), bias=alibi(6))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check(matrix_of(case), case, None)
        assert_within(matrix_of(case).lse, dense_lse(case), lse_tolerance(case, torch.float64))
    finally:
        torch.set_num_threads(before)


def test_a_matrix_made_in_inference_mode_can_be_looked_at_later() -> None:
    case = case_of(pattern=causal())
    with torch.inference_mode():
        matrix = matrix_of(case)
        known = matrix_of(case, lse=dense_lse(case))
    check(known, case, None)
    check(matrix, case, None)


def test_autocast_does_not_round_what_is_there_already() -> None:
    case = case_of(queries=67, pattern=causal(), dtype=torch.float32)
    matrix, exact = matrix_of(case), dense_weights(case)
    share = tolerance(case, torch.float32)
    values, vectors = normal(67, 5, dtype=torch.float32), normal(5, 67, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        weights, left, right = matrix.dense(), vectors @ matrix, matrix @ values
        passed = regard.rollout([matrix, matrix], tokens=[3, 66])
    assert_within(weights, exact, allowance(case, torch.float32))
    bound = exact @ values.double().abs()
    allowed = product_allowance(bound, values, 67, share, torch.float32)
    assert_within(right, exact @ values.double(), allowed)
    bound = vectors.double().abs() @ exact
    allowed = product_allowance(bound, vectors, 67, share, torch.float32)
    assert_within(left, vectors.double() @ exact, allowed)
    expected = dense_rollout([exact, exact], [3, 66], 0.5, "mean")
    assert_within(passed, expected, rollout_tolerance([case, case]))


@pytest.mark.parametrize("pattern", [None, causal(), strided(3) | window(before=2)])
@pytest.mark.parametrize(
    ("batch", "queries", "keys"), [(0, 5, 7), (2, 0, 7), (2, 5, 0), (2, 0, 0), (0, 0, 0)]
)
@pytest.mark.parametrize("sunk", [False, True])
def test_nothing_at_all(
    batch: int, queries: int, keys: int, pattern: Pattern | None, sunk: bool
) -> None:
    case = case_of(batch=batch, heads=3, queries=queries, keys=keys, where=0, pattern=pattern)
    sinks = torch.tensor([0.5, 2.0, -1.0], dtype=torch.float64) if sunk else None
    matrix = matrix_of(case, sinks)
    assert matrix.shape == (batch, 3, queries, keys)
    assert matrix.dense().shape == (batch, 3, queries, keys)
    product = matrix @ normal(keys, 2)
    assert torch.equal(product, torch.zeros(batch, 3, queries, 2, dtype=torch.float64))
    sums = normal(2, queries) @ matrix
    assert torch.equal(sums, torch.zeros(batch, 3, 2, keys, dtype=torch.float64))
    assert matrix[..., :1].dense().shape == (batch, 3, queries, min(1, keys))
    assert torch.equal(matrix.lse, dense_lse(case, sinks))


# Errors


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("where", "error", "message"),
    [
        (1.0, TypeError, "by ints, slices and an ellipsis, got float; for a list of rows or"),
        ([1, 2], TypeError, r"got list; .* use .rows([...]) or .columns([...])"),
        (True, TypeError, "got bool"),
        (None, TypeError, "got NoneType"),
        ("0", TypeError, "got str"),
        (torch.tensor([0, 1]), TypeError, "got Tensor"),
        (torch.tensor(True), TypeError, "got Tensor"),
        (np.arange(2), TypeError, "got ndarray"),
        ((0, 1, 2, 3, 4), IndexError, "takes up to 4 indices and one ellipsis, got 5"),
        ((..., 0, ...), IndexError, "keys] takes up to 4 indices and one ellipsis, got 3"),
        (2, IndexError, "there are 2 batch, got index 2"),
        ((0, -4), IndexError, "there are 3 heads, got index -4"),
        ((..., 5, slice(None)), IndexError, "there are 5 queries, got index 5"),
        ((..., 7), IndexError, "there are 7 keys, got index 7"),
        (slice(None, None, 0), ValueError, "the step of a slice must be at least 1, got 0"),
        ((..., slice(None, None, -2)), ValueError, "must be at least 1, got -2"),
    ],
)
def test_what_is_no_index(where: Any, error: type[Exception], message: str) -> None:
    matrix = matrix_of(case_of(batch=2, heads=3, queries=5, keys=7))
    with pytest.raises(error, match=re.escape(message).replace(r"\.\*", ".*")):
        _ = matrix[where]


def test_a_part_with_fewer_axes_takes_fewer_indices() -> None:
    part = matrix_of(case_of(queries=5, keys=7))[0, 1]
    message = r"axes \[queries, keys\] takes up to 2 indices and one ellipsis, got 3"
    with pytest.raises(IndexError, match=message):
        _ = part[0, 1, 2]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("listed", "error", "message"),
    [
        ([0.5], TypeError, "indices of {} must be a list of whole numbers, got [0.5]"),
        ([True], TypeError, "indices of {} must be a list of whole numbers, got [True]"),
        ([[0]], TypeError, "indices of {} must be a list of whole numbers, got [[0]]"),
        (3, TypeError, "indices of {} must be a list of whole numbers, got 3"),
        ([0, 7, 8], IndexError, "there are 7 {}, got index 7"),
        ([0, -8], IndexError, "there are 7 {}, got index -8"),
    ],
)
def test_what_is_no_list_of_rows(listed: Any, error: type[Exception], message: str) -> None:
    matrix = matrix_of(case_of(queries=7, keys=7))
    with pytest.raises(error, match=re.escape(message.format("queries"))):
        matrix.rows(listed)
    with pytest.raises(error, match=re.escape(message.format("keys"))):
        matrix.columns(listed)


def test_dense_has_a_limit() -> None:
    matrix = matrix_of(case_of(batch=2, heads=3, queries=1009, keys=1013, dtype=torch.float32))
    size = 2 * 3 * 1009 * 1013 * 4
    with pytest.raises(ValueError, match="would take") as raised:
        matrix.dense(limit=size - 1)
    message = str(raised.value)
    assert "2 batch × 3 heads × 1,009 queries × 1,013 keys would take 24.5 MB" in message
    assert "the limit is 24.5 MB" in message
    assert f"limit={size}" in message
    assert all(way in message for way in ("rows()", "columns()", "pool()", "summarize()"))
    assert matrix.dense(limit=size).shape == (2, 3, 1009, 1013)
    with pytest.raises(ValueError, match=r"2 batch × 3 heads × 2 queries × 1,013 keys would take"):
        matrix.rows([1, 2], limit=1000)
    with pytest.raises(ValueError, match=r"1,009 queries × 1 keys would take .* limit is 999 byte"):
        matrix.columns([1], limit=999)


def test_dense_has_a_limit_of_its_own() -> None:
    length = 16411
    x = torch.zeros(1, 1, length, 1)
    with pytest.raises(ValueError, match=r"16,411 queries × 16,411 keys would take 1\.08 GB"):
        AttentionMatrix(x, x).dense()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        (
            {"lse": torch.zeros(2, 3, 7)},
            ValueError,
            "lse must be a floating-point tensor of shape [2, 3, 5], "
            "got torch.float32 of shape [2, 3, 7]",
        ),
        ({"lse": torch.zeros(2, 3, 5, 1)}, ValueError, "got torch.float32 of shape [2, 3, 5, 1]"),
        (
            {"lse": torch.zeros(2, 3, 5, dtype=torch.long)},
            ValueError,
            "lse must be a floating-point tensor of shape [2, 3, 5], got torch.int64",
        ),
        ({"lse": 0.0}, TypeError, "lse must be a tensor, got float"),
        (
            {"sinks": torch.zeros(2)},
            ValueError,
            "sinks must be a floating-point tensor of shape [3], got torch.float32 of shape [2]",
        ),
        ({"sinks": torch.zeros(())}, ValueError, "got torch.float32 of shape []"),
        (
            {"sinks": torch.zeros(3, dtype=torch.int32)},
            ValueError,
            "sinks must be a floating-point tensor of shape [3], got torch.int32 of shape [3]",
        ),
        ({"sinks": [0.0, 0.0, 0.0]}, TypeError, "sinks must be a tensor, got list"),
        (
            {"lse": torch.zeros(2, 3, 5, device="meta")},
            ValueError,
            "lse must lie on the device of query (cpu), got meta",
        ),
        ({"pattern": torch.ones(5, 7)}, TypeError, "pattern must be a Pattern"),
        ({"positions": torch.arange(4)}, ValueError, "positions must name one whole number"),
        ({"scale": float("nan")}, ValueError, "scale must be a finite number, got nan"),
    ],
)
def test_arguments_that_do_not_fit(
    more: dict[str, Any], error: type[Exception], message: str
) -> None:
    case = case_of(batch=2, heads=3, queries=5, keys=7)
    with pytest.raises(error, match=re.escape(message)):
        AttentionMatrix(case.query, case.key, **more)


@pytest.mark.usefixtures("unchecked")
def test_values_that_do_not_fit() -> None:
    matrix = matrix_of(case_of(batch=2, heads=3, group=2, queries=5, keys=7))
    for shape in [(5,), (5, 2), (6, 5, 2), (4, 7, 2), (3, 6, 7, 2), (2, 5, 7, 2), (1, 2, 6, 7, 2)]:
        message = "values must have the shape [2 batch, 6 heads, 7 keys, dim] or fewer axes, got ["
        with pytest.raises(ValueError, match=re.escape(message)):
            matrix @ torch.zeros(shape)
    for shape in [(7,), (2, 7), (6, 2, 7), (3, 2, 5), (3, 6, 2, 5), (1, 2, 6, 2, 5)]:
        message = "vectors must have the shape [2 batch, 6 heads, vectors, 5 queries] or fewer axes"
        with pytest.raises(ValueError, match=re.escape(message)):
            torch.zeros(shape) @ matrix
    with pytest.raises(ValueError, match=r"the shape \[7 keys, dim\] or fewer axes, got \[1, 7, 2"):
        matrix[0, 0] @ torch.zeros(1, 7, 2)
    with pytest.raises(ValueError, match=r"the shape \[2 batch, 7 keys, dim\] or fewer"):
        matrix[:, 0] @ torch.zeros(3, 7, 2)
    with pytest.raises(ValueError, match="values must be a floating-point tensor with at least"):
        matrix @ torch.zeros(7, dtype=torch.long)
    with pytest.raises(ValueError, match=r"at least one axis, got torch.float32 of shape \[\]"):
        matrix @ torch.zeros(())
    with pytest.raises(TypeError, match="values must be a tensor, got list"):
        matrix @ [0.0] * 7
    with pytest.raises(TypeError, match="vectors must be a tensor, got list"):
        _ = [0.0] * 5 @ matrix


@pytest.mark.usefixtures("unchecked")
def test_weights_that_are_none() -> None:
    for shape in [(5,), (5, 7), (3, 5, 7), (1, 2, 3, 5, 7)]:
        message = (
            "weights must be a floating-point tensor [batch, heads, queries, keys], "
            f"got torch.float32 of shape {list(shape)}"
        )
        with pytest.raises(ValueError, match=re.escape(message)):
            AttentionMatrix.from_weights(torch.zeros(shape))
    with pytest.raises(ValueError, match=r"must be a floating-point .* got torch.int64"):
        AttentionMatrix.from_weights(torch.zeros(1, 2, 3, 5, dtype=torch.long))
    with pytest.raises(TypeError, match="weights must be a tensor, got list"):
        AttentionMatrix.from_weights([[[[1.0]]]])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="positions must name one whole number per query"):
        AttentionMatrix.from_weights(torch.zeros(1, 2, 3, 5), positions=torch.arange(5))
    with pytest.raises(ValueError, match="made from weights has no log-sum-exp"):
        _ = AttentionMatrix.from_weights(torch.zeros(1, 2, 3, 5)).lse


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("wrong", "bounds"), [(-0.25, "-0.25 to 1"), (1.5, "0 to 1.5")])
def test_weights_that_no_softmax_makes(wrong: float, bounds: str, dtype: torch.dtype) -> None:
    weights = torch.eye(5, dtype=dtype).repeat(2, 3, 1, 1)
    weights[1, 2, 3, 0] = wrong
    with pytest.raises(ValueError, match=rf"must lie from 0 to 1, got {bounds}: .* softmax"):
        AttentionMatrix.from_weights(weights)
    assert torch.equal(AttentionMatrix.from_weights(weights, check=False).dense(), weights.float())
    # What is wrong is found beside what isn't known.
    weights[0, 0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match=rf"got {bounds}: "):
        AttentionMatrix.from_weights(weights)


def test_infinite_weights_are_refused() -> None:
    weights = torch.full((1, 1, 2, 2), torch.inf)
    with pytest.raises(ValueError, match="got inf to inf"):
        AttentionMatrix.from_weights(weights)


def test_weights_that_are_rounded_or_unknown_are_taken() -> None:
    weights = torch.tensor([[-0.0009, 1.0009], [torch.nan, 0.5]])[None, None]
    found = AttentionMatrix.from_weights(weights).dense()
    assert torch.equal(found.nan_to_num(nan=7.0), weights.nan_to_num(nan=7.0))
    assert AttentionMatrix.from_weights(torch.full((1, 1, 2, 2), torch.nan)).dense().isnan().all()
    assert AttentionMatrix.from_weights(torch.zeros(1, 2, 0, 5)).shape == (1, 2, 0, 5)


# Memory

PROGRAM = """
import torch
import regard
from benchmarks._measure import peak_bytes

length = 262_144
x = torch.randn(1, 2, length, 16)
lse = torch.full((1, 2, length), 12.5)
bias = {bias}
short = x[:, :, :512]
A = regard.AttentionMatrix(short, short, pattern={pattern}, bias=bias, lse=lse[:, :, :512])
A[0, 0, :256, :256].dense(), A[0, 1, 7]
before = peak_bytes()
A = regard.AttentionMatrix(x, x, pattern={pattern}, bias=bias, lse=lse)
tile = A[0, 0, -256:, :256].dense()
row = A[0, 1, length // 2]
column = A[0, 1, :, 5]
assert tile.shape == (256, 256) and row.shape == column.shape == (length,)
assert row.any() and column.any()
print((peak_bytes() - before) / 2**20)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize("pattern", ["None", "regard.causal()"])
@pytest.mark.parametrize("bias", ["None", "regard.positions.alibi(2)"])
def test_a_part_of_a_long_matrix_takes_little_memory(bias: str, pattern: str) -> None:
    # All weights would be 550 GB.
    program = PROGRAM.format(bias=bias, pattern=pattern)
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert float(finished.stdout) < 200


# Through several layers


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


HEADS: dict[str, str | Tensor] = {
    "mean": "mean",
    "max": "max",
    "min": "min",
    "weights": torch.tensor([0.5, 0.125, 0.25, 0.125]),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sunk", [False, True])
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("num_layers", [1, 3])
def test_rollout(num_layers: int, heads: str, sunk: bool, dtype: torch.dtype) -> None:
    patterns = [causal(), window(before=5, after=5), causal()][:num_layers]
    layers = [
        case_of(heads=2, group=2, queries=67, pattern=pattern, seed=seed, dtype=dtype)
        for seed, pattern in enumerate(patterns)
    ]
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0]).to(dtype) if sunk else None
    matrices = [matrix_of(case, sinks) for case in layers]
    exact = [dense_weights(case, sinks) for case in layers]
    off, tokens, how = rollout_tolerance(layers, sinks), [66, 5, -1, 5, -67], HEADS[heads]
    for residual in (0.0, 0.5, 0.75):
        expected = dense_rollout(exact, tokens, residual, how)
        found = regard.rollout(matrices, tokens=tokens, residual=residual, heads=how)
        assert found.dtype == lse_dtype(dtype)
        assert_within(found, expected, off)
        alone = regard.rollout(
            [m[1] for m in matrices], tokens=tokens, residual=residual, heads=how
        )
        assert_within(alone, expected[1], off)
    default = regard.rollout(matrices, tokens=torch.tensor(tokens), heads=how)
    assert_within(default, dense_rollout(exact, tokens, 0.5, how), off)


def test_rollout_of_views_and_of_weights() -> None:
    layers = [case_of(heads=4, queries=67, seed=seed) for seed in range(2)]
    where = (slice(None), slice(1, 4), slice(3, 50), slice(3, 50))
    exact = [dense_weights(case)[where] for case in layers]
    expected = dense_rollout(exact, [3, -2], 0.5, "mean")
    off = rollout_tolerance(layers)
    parts = [matrix_of(case)[where] for case in layers]
    assert_within(regard.rollout(parts, tokens=[3, -2]), expected, off)
    written = [AttentionMatrix.from_weights(x) for x in exact]
    assert_within(regard.rollout(written, tokens=[3, -2]), expected, off)
    for how in ("max", "min"):
        expected = dense_rollout(exact, [3, -2], 0.5, how)
        assert_within(regard.rollout(parts, tokens=[3, -2], heads=how), expected, off)


def test_a_rollout_past_attention_stays_where_it_is() -> None:
    matrices = [matrix_of(case_of(queries=7, pattern=causal()))] * 3
    found = regard.rollout(matrices, tokens=[3, -1], residual=1.0)
    assert torch.equal(found, torch.eye(7, dtype=torch.float64)[[3, 6]].expand(2, 2, 7))


def test_a_rollout_of_empty_rows_keeps_the_residual_alone() -> None:
    matrices = [matrix_of(case_of(queries=7, pattern=NOBODY))] * 2
    for how in ("mean", "max", "min"):
        found = regard.rollout(matrices, tokens=[3], residual=0.5, heads=how)
        assert torch.equal(found, 0.25 * torch.eye(7, dtype=torch.float64)[[3]].expand(2, 1, 7))


def test_a_rollout_through_layers_of_one_batch_and_head() -> None:
    case = case_of(batch=1, heads=1, queries=1)
    found = regard.rollout([matrix_of(case)] * 2, tokens=[0])
    off = rollout_tolerance([case] * 2)
    assert_within(found, torch.ones(1, 1, 1, dtype=torch.float64), off)


def test_a_rollout_takes_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # The function hides its module.
    module = sys.modules["regard.matrix.rollout"]
    monkeypatch.setattr(module, "BUDGET", 2 * 3 * 67 * 8 * 4 * 5)
    layers = [case_of(queries=67, pattern=causal(), seed=seed) for seed in range(2)]
    exact = [dense_weights(case) for case in layers]
    for how in ("max", "min"):
        found = regard.rollout([matrix_of(case) for case in layers], tokens=[66, 30], heads=how)
        expected = dense_rollout(exact, [66, 30], 0.5, how)
        assert_within(found, expected, rollout_tolerance(layers))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"matrices": []}, ValueError, "matrices must hold at least one layer, got none"),
        ({"residual": 1.5}, ValueError, "residual must lie between 0 and 1, got 1.5"),
        ({"residual": -0.1}, ValueError, "residual must lie between 0 and 1, got -0.1"),
        ({"residual": float("nan")}, ValueError, "residual must lie between 0 and 1, got nan"),
        ({"tokens": [0, 7]}, IndexError, "there are 7 tokens, got index 7"),
        ({"tokens": [-8]}, IndexError, "there are 7 tokens, got index -8"),
        ({"tokens": [0.5]}, TypeError, "tokens must be a list of whole numbers, got [0.5]"),
        ({"tokens": 3}, TypeError, "tokens must be a list of whole numbers, got 3"),
        (
            {"heads": "median"},
            ValueError,
            "heads must be 'mean', 'max', 'min' or a tensor, got 'median'",
        ),
        (
            {"heads": torch.ones(2)},
            ValueError,
            "heads must have one weight for each of 3 heads, got torch.float32 of shape [2]",
        ),
        (
            {"heads": torch.ones(3, dtype=torch.long)},
            ValueError,
            "heads must have one weight for each of 3 heads, got torch.int64 of shape [3]",
        ),
    ],
)
def test_what_a_rollout_refuses(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    arguments = {"matrices": [matrix_of(case_of(queries=7))] * 2, "tokens": [0]} | change
    with pytest.raises(error, match=re.escape(message)):
        regard.rollout(**arguments)


@pytest.mark.usefixtures("unchecked")
def test_layers_that_do_not_fit_together() -> None:
    square = matrix_of(case_of(queries=7))
    with pytest.raises(ValueError, match=r"as many queries as keys, got AttentionMatrix\(.* at 1"):
        regard.rollout([square, matrix_of(case_of(queries=5, keys=7))], tokens=[0])
    with pytest.raises(ValueError, match=r"must have the axes heads, queries and keys.* at 0"):
        regard.rollout([square[0, 0]], tokens=[0])
    with pytest.raises(ValueError, match="must have the axes heads"):
        regard.rollout([square[:, 0]], tokens=[0])
    message = r"matrices must have one shape, got \[2, 3, 5, 5\] at 1 and \[2, 3, 7, 7\] at 0"
    with pytest.raises(ValueError, match=message):
        regard.rollout([square, matrix_of(case_of(queries=5))], tokens=[0])
    with pytest.raises(ValueError, match=r"got \[3, 7, 7\] at 1 and \[2, 3, 7, 7\] at 0"):
        regard.rollout([square, square[0]], tokens=[0])
    with pytest.raises(TypeError, match=r"got Tensor at 1; AttentionMatrix.from_weights\(tensor\)"):
        regard.rollout([square, square.dense()], tokens=[0])  # type: ignore[list-item]
