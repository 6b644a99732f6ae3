"""Pictures of a matrix, whose cells are pooled."""

from typing import Any

import pytest
import torch

from regard.matrix import AttentionMatrix
from regard.patterns import Pattern, causal, padding, window
from tests.attention.cases import case_of
from tests.matrix.cases import matrix_of
from tests.matrix.definitions import check_pool, small_tiles
from tests.matrix.known import assert_near, known_of


def rectangle(height: int, width: int) -> AttentionMatrix:
    """Return a matrix that counts upwards from 0."""
    weights = torch.arange(height * width, dtype=torch.float64).reshape(1, 1, height, width)
    # Whole numbers, which are easy to follow and no weights.
    return AttentionMatrix.from_weights(weights, check=False)[0, 0]


def test_pictures_by_hand() -> None:
    # 0 1 2 3 4 / 5 6 7 8 9 / 10 … 14: cells of 2 × 3 queries and keys, the last ones smaller.
    matrix = rectangle(3, 5)
    mean, largest = matrix.pool(2), matrix.pool(2, "max")
    assert (mean.height, mean.width) == (largest.height, largest.width) == (2, 3)
    assert mean.cells.tolist() == [[3.5, 6.0], [11.0, 13.5]]
    assert largest.cells.tolist() == [[7.0, 9.0], [12.0, 14.0]]
    assert (list(mean.labels["cell_rows"]), list(mean.labels["cell_columns"])) == ([0, 2], [0, 3])


def test_pictures_have_no_more_cells_than_it_takes() -> None:
    # Seven rows in up to four cells are cells of two; nine in up to four would be cells of three.
    found = rectangle(7, 9).pool(4)
    assert (found.height, found.width, found.cells.shape) == (2, 3, (4, 3))


def test_one_cell() -> None:
    assert rectangle(3, 5).pool(1).cells.tolist() == [[7.0]]
    assert rectangle(3, 5).pool(1, "max").cells.tolist() == [[14.0]]


@pytest.mark.parametrize("how", ["mean", "max"])
@pytest.mark.parametrize("size", [13, 17, 1009])
def test_a_picture_larger_than_the_matrix_is_the_matrix(how: Any, size: int) -> None:
    case = case_of(queries=11, keys=13, pattern=window(5))
    known, found = known_of(case), matrix_of(case).pool(size, how)
    assert_near(found.cells, known.weights, known.share * known.weights)
    assert found.cells.shape == known.weights.shape
    assert (found.height, found.width) == (1, 1)


@pytest.mark.pairwise
@pytest.mark.parametrize("how", ["mean", "max"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("pattern", [causal(), window(3) | padding([32])])
def test_cells_of_whole_groups_of_rows(how: Any, size: int, pattern: Pattern) -> None:
    """Cells whose height is a multiple of 64 are made of sums that are known already."""
    case = case_of(batch=1, heads=2, queries=320, pattern=pattern)
    for rows in (64, 100, 512):
        with pytest.MonkeyPatch.context() as patch:
            small_tiles(patch, rows, 4096)
            known = known_of(case)
            check_pool(size, how)(matrix_of(case).pool(size, how), known)
