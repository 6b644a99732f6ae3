"""Parts of a matrix, its rows and its columns are those of all weights."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies
from torch import Tensor

from regard import AttentionMatrix, causal, strided, window
from regard.positions import alibi
from tests.attention.cases import case_of
from tests.matrix.cases import allowance, assert_within, dense_weights, matrix_cases, matrix_of
from tests.matrix.expected import SHORT, check_part, indices
from tests.strategies import fewer


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


@pytest.mark.pairwise
@pytest.mark.parametrize("listed", [[5], [36, 0, 17], [3, 3, -1, 3], [-37, 36, -2, -2], range(37)])
@pytest.mark.parametrize("kind", [list, torch.tensor])
@pytest.mark.parametrize("where", [(), 1, (slice(None), -2), (1, 3, slice(None), slice(2, 39))])
def test_rows(listed: Any, kind: Callable[..., Any], where: Any) -> None:
    case = case_of(heads=2, group=3, keys=41, pattern=causal() & window(before=11), bias=alibi(6))
    exact, allowed = dense_weights(case)[where], allowance(case, torch.float64)[where]
    places = torch.tensor(list(listed))
    found = matrix_of(case)[where].rows(kind(list(listed)))
    assert_within(found, exact[..., places, :], allowed[..., places, :])


@pytest.mark.pairwise
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


@fewer
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
