"""What runs by day of a product of parameters has every pair that the product has."""

from itertools import combinations, product

import pytest

from tests.pairwise import cover


def pairs(rows: list[tuple[int, ...]]) -> set[object]:
    return {pair for row in rows for pair in combinations(enumerate(row), 2)}


@pytest.mark.parametrize("sizes", [(2, 2), (3, 4, 14), (2, 3, 4, 5), (2, 2, 2, 2, 2, 2), (1, 7)])
def test_every_pair_is_chosen(sizes: tuple[int, ...]) -> None:
    rows = list(product(*map(range, sizes)))
    chosen = cover([tuple(enumerate(row)) for row in rows])
    assert pairs([rows[number] for number in chosen]) == pairs(rows)
    largest, next_largest = sorted(sizes)[:-3:-1]
    # No cover is smaller than the product of the two largest; this one is at most a half larger.
    assert largest * next_largest <= len(chosen) <= 1.5 * largest * next_largest + 2


def test_pairs_that_no_test_has_are_not_asked_for() -> None:
    rows = [(("a", 0), ("b", 0), ("c", 0)), (("a", 1), ("b", 1), ("c", 0))]
    assert cover(rows) == [0, 1]


TESTS = """
import pytest

@pytest.mark.pairwise
@pytest.mark.parametrize("a", range(2))
@pytest.mark.parametrize("b", range(2))
@pytest.mark.parametrize("c", range(2))
def test_marked(a, b, c): ...

@pytest.mark.parametrize("a", range(2))
@pytest.mark.parametrize("b", range(2))
@pytest.mark.parametrize("c", range(2))
def test_unmarked(a, b, c): ...
"""


def test_the_others_are_left_to_the_night(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmarkers =\n  pairwise\n  thorough\n")
    pytester.makeconftest(
        "from tests.pairwise import leave_to_the_night as pytest_collection_modifyitems"
    )
    pytester.makepyfile(TESTS)
    shown = pytester.runpytest_inprocess("--collect-only", "-q", "-m", "not thorough").outlines
    assert sum("::test_marked" in line for line in shown) == 4
    assert sum("::test_unmarked" in line for line in shown) == 8
