"""Reductions of parts of a matrix."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.patterns import Pattern, causal, padding, strided
from tests.attention.cases import case_of
from tests.matrix.cases import matrix_of
from tests.matrix.definitions import check_all, check_part, each_reduction
from tests.matrix.known import known_of, matrices
from tests.strategies import fewer

VIEWS: dict[str, tuple[tuple[Any, ...], tuple[slice, ...], tuple[str, ...]]] = {
    "[0, 3]": (
        (0, 3),
        (slice(0, 1), slice(3, 4), slice(None), slice(None)),
        ("queries", "keys"),
    ),
    "[-1, :]": (
        (-1, slice(None)),
        (slice(1, 2), slice(None), slice(None), slice(None)),
        ("heads", "queries", "keys"),
    ),
    "[:, 1:3]": (
        (slice(None), slice(1, 3)),
        (slice(None), slice(1, 3), slice(None), slice(None)),
        ("batch", "heads", "queries", "keys"),
    ),
    "[:, 2]": (
        (slice(None), 2),
        (slice(None), slice(2, 3), slice(None), slice(None)),
        ("batch", "queries", "keys"),
    ),
    "[..., 5:40, :]": (
        (..., slice(5, 40), slice(None)),
        (slice(None), slice(None), slice(5, 40), slice(None)),
        ("batch", "heads", "queries", "keys"),
    ),
    "[..., ::3, 10:50]": (
        (..., slice(None, None, 3), slice(10, 50)),
        (slice(None), slice(None), slice(None, None, 3), slice(10, 50)),
        ("batch", "heads", "queries", "keys"),
    ),
    "[1, ::2, 7:, ::5]": (
        (1, slice(None, None, 2), slice(7, None), slice(None, None, 5)),
        (slice(1, 2), slice(None, None, 2), slice(7, None), slice(None, None, 5)),
        ("heads", "queries", "keys"),
    ),
}


@pytest.mark.pairwise
@each_reduction
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("pattern", [causal(), strided(7) | padding([31, 67])])
def test_views(name: str, view: str, pattern: Pattern) -> None:
    case = case_of(heads=2, group=3, queries=61, keys=67, pattern=pattern)
    index, slices, axes = VIEWS[view]
    part, known = matrix_of(case)[index], known_of(case).part(*slices)
    found = check_part(name, part, known)
    own = {axis: getattr(known, axis) for axis in ("batch", "heads", "queries", "keys")}
    for one, values in found.tensors.items():
        names = found.axes(one)
        assert values.shape == tuple(len(found.labels[axis]) for axis in names)
        if names == ("edges",):
            continue
        assert names[: len(axes) - 2] == axes[:-2]
        assert not {"batch", "heads"} & set(names[len(axes) - 2 :])
        for axis in set(names) & set(own):
            assert list(found.labels[axis]) == own[axis].tolist()


@fewer
@given(data=st.data())
def test_any_view(data: st.DataObject) -> None:
    case, sinks = data.draw(matrices(lengths=(7, 37, 67, 131)))
    known = known_of(case, sinks)
    slices: list[slice] = []
    for size in known.weights.shape:
        start = data.draw(st.integers(0, size - 1))
        stop = data.draw(st.integers(start + 1, size))
        slices.append(slice(start, stop, data.draw(st.sampled_from([1, 1, 2, 5]))))
    check_all(matrix_of(case, sinks)[tuple(slices)], known.part(*slices))


def test_cells_of_a_view_are_called_by_the_indices_of_the_matrix() -> None:
    """Rows and columns of cells are called as their first query and key."""
    matrix = matrix_of(case_of(queries=61, keys=67))
    found = matrix[..., 5:40, 10:50:2].pool(7)
    assert list(found.labels["cell_rows"]) == [5, 10, 15, 20, 25, 30, 35]
    assert list(found.labels["cell_columns"]) == [10, 16, 22, 28, 34, 40, 46]
