"""Ranks in the order of their heads; `tests/capture/test_sharded.py` has models of several."""

import pytest

from regard.distributed.head_shards import head_order


def test_ranks_in_the_order_of_their_heads() -> None:
    assert head_order("call", [range(5, 7), range(2, 5), range(2)], 7) == [2, 1, 0]
    # A rank that has none of them.
    assert head_order("call", [range(2, 4), range(2, 2), range(2)], 4) == [2, 0, 1]


@pytest.mark.parametrize(
    ("heads", "total"),
    [
        ([range(2), range(2)], 4),
        ([range(2), range(3, 5)], 5),
        ([range(2), range(1, 3)], 3),
        ([range(2)], 3),
        ([range(2)], None),
    ],
)
def test_heads_that_are_missing_or_twice_are_refused(heads: list[range], total: int | None) -> None:
    rule = r"the ranks must have each head of call 7 once, and have \[0, 1.* of .*: pass group="
    with pytest.raises(ValueError, match=rule):
        head_order("call 7", heads, total)
