"""Patterns in other positions, and with queries and keys exchanged, against their dense mask."""

import gc
import weakref
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.distributed.content import described
from regard.patterns import (
    Cover,
    Pattern,
    causal,
    columns,
    documents,
    from_mask,
    padding,
    prefix,
    window,
)
from regard.patterns.layout import consecutive_layout
from regard.patterns.layout_cache import cached
from regard.patterns.remapped import remapped
from tests.patterns.test_layout import assert_fits
from tests.strategies import patterns

SIZES = st.integers(1, 70)
BATCHES = st.sampled_from([None, 1, 3])


@dataclass(frozen=True)
class Case:
    """A remapped pattern, and its mask for all positions that the pattern knows."""

    pattern: Pattern
    queries: range
    keys: range
    mask: torch.Tensor

    def masked(self, queries: range, keys: range) -> torch.Tensor:
        first, start = queries.start - self.queries.start, keys.start - self.keys.start
        return self.mask[:, first : first + len(queries), start : start + len(keys)]


def drawn(data: st.DataObject) -> Case:
    draw = data.draw
    size, batch = draw(SIZES), draw(BATCHES)
    pattern = draw(patterns(size, batch))
    query, key = draw(st.integers(-size, size)), draw(st.integers(0, size - 1))
    exchanged = draw(st.booleans())

    # The mask, indexed: keys begin at `key`, queries anywhere.
    mask = pattern.allows(range(size), range(size)).expand(batch or 1, size, size)
    mask = mask.mT if exchanged else mask
    other = remapped(pattern, query, key, exchanged=exchanged)
    assert other.batch_size == pattern.batch_size
    return Case(other, range(-query, size - query), range(size - key), mask[:, :, key:])


@st.composite
def parts_of(draw: st.DrawFn, positions: range) -> range:
    low, high = sorted(draw(st.integers(0, len(positions) - 1)) for _ in range(2))
    return positions[low : high + 1]


@given(st.data())
def test_each_pair(data: st.DataObject) -> None:
    case = drawn(data)
    assert torch.equal(case.pattern.allows(case.queries, case.keys).expand_as(case.mask), case.mask)
    queries = torch.arange(case.queries.start, case.queries.stop)
    assert torch.equal(case.pattern.dense(queries, len(case.keys)).expand_as(case.mask), case.mask)


@given(st.data())
def test_covers_are_certain(data: st.DataObject) -> None:
    case = drawn(data)
    for _ in range(5):
        queries, keys = data.draw(parts_of(case.queries)), data.draw(parts_of(case.keys))
        allowed = case.masked(queries, keys)
        cover = case.pattern.cover(queries, keys)
        assert cover != Cover.ALL or allowed.all()
        assert cover != Cover.NONE or not allowed.any()


@given(st.data())
def test_simplified(data: st.DataObject) -> None:
    case = drawn(data)
    queries = data.draw(parts_of(case.queries))
    simple = case.pattern.simplified(queries, len(case.keys))
    assert len(list(simple.leaves())) <= len(list(case.pattern.leaves()))
    allowed = simple.allows(queries, case.keys)
    expected = case.masked(queries, case.keys)
    assert torch.equal(allowed.expand_as(expected), expected)


@given(st.data())
def test_relative_and_key_only(data: st.DataObject) -> None:
    case = drawn(data)
    if case.pattern.relative:
        for offset in range(1 - len(case.queries), len(case.keys)):
            diagonal = case.mask.diagonal(offset, dim1=1, dim2=2)
            assert diagonal.all() or not diagonal.any()
    if case.pattern.key_only:
        assert torch.equal(case.mask, case.mask[:, :1].expand_as(case.mask))


@given(SIZES, BATCHES, st.integers(1, 40), st.integers(0, 69), st.booleans(), st.data())
def test_layouts(
    size: int, batch: int | None, block: int, first: int, exchanged: bool, data: st.DataObject
) -> None:
    pattern = data.draw(patterns(size, batch))
    key = first % size
    other = remapped(pattern, key=key, exchanged=exchanged)
    assert_fits(other, torch.arange(size), size - key, block, batch)


def test_each_argument_is_content() -> None:
    # Ranks compare their patterns by it.
    pattern = columns(every=3)
    contents = {
        described(remapped(pattern, query, key, exchanged=exchanged))
        for query, key in ((0, 0), (1, 0), (0, 1), (2, 1))
        for exchanged in (False, True)
    }
    assert len(contents) == 8


def test_what_is_the_same_elsewhere() -> None:
    pattern = causal() & window(before=3)
    assert remapped(pattern, 5, 5) == pattern
    assert remapped(pattern, 5, 4) != pattern
    assert remapped(prefix(3), 5, 5) != prefix(3)
    assert remapped(prefix(3)) == prefix(3)


@pytest.mark.parametrize(
    ("pattern", "batch", "queries", "num_keys", "error"),
    [
        (remapped(documents([0] * 9), key=2), 1, range(7), 6, r"one id per key \(8\), got 9"),
        (remapped(documents([0] * 9), 3), 1, range(7), 9, "from 0 to 8, got 3 to 9"),
        (remapped(documents([0] * 9), -3), 1, range(7), 9, "from 0 to 8, got -3 to 3"),
        (remapped(documents([0] * 9), exchanged=True), 1, range(10), 9, "one id per key"),
        (remapped(documents([0] * 9), exchanged=True), 1, range(9), 10, "from 0 to 8, got 0 to 9"),
        (remapped(padding([3, 4]), exchanged=True), 3, range(9), 9, "got 2 for a batch of 3"),
        (remapped(from_mask(torch.ones(2, 5).bool()), 3), 1, range(3), 5, "got queries at 3 to 5"),
    ],
)
def test_check(pattern: Pattern, batch: int, queries: range, num_keys: int, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        pattern.check(batch, queries, num_keys)


def test_check_passes() -> None:
    remapped(documents([0] * 9), 2, 1).check(1, range(-2, 7), 8)
    remapped(documents([0] * 9), key=4, exchanged=True).check(1, range(3), 5)
    remapped(causal() & padding([3, 4]), 20, exchanged=True).check(2, range(9), 100)


def test_members_know_their_positions() -> None:
    # Of a combination too: a step of generation must not ask for positions that there are not.
    pattern = remapped(causal() & documents([0, 0, 1, 1]), 1)
    assert [leaf.num_positions for leaf in pattern.leaves()] == [None, 4]
    with pytest.raises(ValueError, match=r"^shifted\(documents\(4 ids\), queries=1, keys=0\) has"):
        pattern.allows([0], [4])


def test_reprs() -> None:
    assert repr(remapped(causal() | prefix(3), 2, 1)) == (
        "shifted(causal(), queries=2, keys=1) | shifted(prefix(3), queries=2, keys=1)"
    )
    assert repr(remapped(~causal(), exchanged=True)) == "~transposed(causal(), queries=0, keys=0)"


def test_equal_ones_share_layouts() -> None:
    first, second = (
        consecutive_layout(remapped(window(before=7), 1), 0, 3, 3, 4) for _ in range(2)
    )
    assert first is second
    assert consecutive_layout(remapped(window(before=7), 2), 0, 3, 3, 4) is not first


def test_what_was_made_from_one_with_tensors_goes_with_its_pattern() -> None:
    pattern = documents([0, 0, 1, 1])
    other = remapped(pattern, 1)
    assert remapped(pattern, 1) is other
    made = weakref.ref(consecutive_layout(other, 0, 3, 4, 4))
    assert made() is not None
    del pattern, other
    gc.collect()
    assert made() is None


def test_of_a_pattern_without_a_hash() -> None:
    @dataclass
    class Even(Pattern):
        def test(self, batch, query, key):
            return key % 2 == query % 2

    pattern = remapped(Even(), 1)
    assert cached(pattern, "name", lambda: 3) == 3
    assert remapped(pattern, 1).allows([0], [0, 1]).tolist() == [[True, False]]
