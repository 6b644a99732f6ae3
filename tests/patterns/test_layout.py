"""The strips of a layout, against the mask of the pattern."""

from unittest.mock import patch

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from regard.patterns import (
    Layout,
    Pattern,
    causal,
    columns,
    documents,
    everyone,
    from_mask,
    global_at,
    layout,
    neighbours,
    padding,
    prefix,
    strided,
    window,
)
from regard.patterns.layout import WRITTEN_PAIRS, Strip
from tests.strategies import patterns, query_positions

BATCHES = st.sampled_from([None, 1, 3])
BLOCKS = st.one_of(st.integers(1, 40), st.sampled_from([64, 128, 200]))


def allowed_in(strip: Strip, positions: torch.Tensor) -> torch.Tensor:
    """Return which pairs of each rectangle are to be computed, [rectangles, queries, keys]."""
    queries, keys = strip.queries.index(), strip.keys.index()
    shape = (strip.num_rectangles, strip.queries.count, strip.keys.count)
    assert strip.mask is None or strip.pattern is None
    if strip.mask is not None:
        return strip.mask.expand(shape)
    if strip.pattern is None:
        return torch.ones(shape, dtype=torch.bool)
    # Several sequences can't share a strip whose mask differs from one to the other.
    assert strip.batch is not None or strip.pattern.batch_size is None
    sequence = torch.tensor(strip.batch or 0)
    query, key = positions[queries][:, :, None], keys[:, None, :]
    return strip.pattern.test(sequence, query, key).expand(shape)


def counted(found: Layout, batch: int, num_keys: int) -> torch.Tensor:
    """Count how often each pair is computed, [batch, queries, keys]."""
    count = torch.zeros(batch, len(found.query_positions), num_keys, dtype=torch.long)
    for strip in found.strips:
        allowed = allowed_in(strip, found.query_positions).long()
        place = (strip.queries.index()[:, :, None], strip.keys.index()[:, None, :])
        for sequence in range(batch) if strip.batch is None else [strip.batch]:
            count[sequence].index_put_(place, allowed, accumulate=True)
    return count


def assert_fits(
    pattern: Pattern, positions: torch.Tensor, num_keys: int, block: int, batch: int | None
) -> None:
    """Assert that each allowed pair is computed once, and no other."""
    shape = (batch or 1, len(positions), num_keys)
    expected = pattern.allows(positions, range(num_keys)).expand(shape)
    for written in (WRITTEN_PAIRS, 0):
        with patch("regard.patterns.layout.WRITTEN_PAIRS", written):
            found = layout(pattern, positions, num_keys, block=block)
            assert written or all(s.mask is None or len(s.mask) == 1 for s in found.strips)
        assert torch.equal(counted(found, batch or 1, num_keys), expected.long())


@given(st.integers(1, 150), BATCHES, BLOCKS, st.data())
def test_each_allowed_pair_lies_in_one_strip(
    num_keys: int, batch: int | None, block: int, data: st.DataObject
) -> None:
    pattern = data.draw(patterns(num_keys, batch))
    first, last = sorted(data.draw(st.integers(0, num_keys - 1)) for _ in range(2))
    assert_fits(pattern, torch.arange(first, last + 1), num_keys, block, batch)


@given(st.integers(1, 150), BATCHES, BLOCKS, st.data())
def test_queries_in_any_order(
    num_keys: int, batch: int | None, block: int, data: st.DataObject
) -> None:
    pattern = data.draw(patterns(num_keys, batch))
    assert_fits(pattern, data.draw(query_positions(num_keys)), num_keys, block, batch)


@given(st.integers(1, 100), BATCHES, BLOCKS, st.data())
def test_queries_outside_of_the_keys(
    num_keys: int, batch: int | None, block: int, data: st.DataObject
) -> None:
    pattern = data.draw(patterns(num_keys, batch, anywhere=True))
    positions = data.draw(query_positions(num_keys, anywhere=True))
    assert_fits(pattern, positions, num_keys, block, batch)


@pytest.mark.pairwise
@pytest.mark.parametrize("first", [0, 37])
@pytest.mark.parametrize("block", [16, 33, 64, 128])
@pytest.mark.parametrize(
    "pattern",
    [
        window(before=63) | columns(every=32),
        causal() & (window(before=40) | columns(every=7)),
        causal() & strided(5),
        window(before=30, after=30) | global_at([0, 1, 400]),
        causal() & documents([i // 70 for i in range(500)]),
        window(before=40) & documents([i // 70 % 2 for i in range(500)]),
        causal() & padding([500, 310]),
        causal() | prefix(100),
        # The mask of a block depends on whether it lies in the prefix, not only on distances.
        window(before=40, after=40) & (prefix(256) | ~window(before=10)),
        columns(every=5) & strided(3) | columns(every=3),
        everyone(),
        ~everyone(),
    ],
    ids=repr,
)
def test_longer_sequences(pattern: Pattern, block: int, first: int) -> None:
    """Lengths at which strips hold many blocks."""
    assert_fits(pattern, torch.arange(first, 500), 500, block, pattern.batch_size)


@given(
    st.lists(st.integers(0, 2**12 - 1), min_size=2, max_size=6),
    st.booleans(),
    st.sampled_from([1, 2]),
    st.integers(0, 31),
)
@example([0b100101, 0b101001], True, 1, 0)
@example([0b100111, 0b110101], True, 1, 7)
@example([0b1, 0b0, 0b1], True, 1, 0)
def test_blocks_that_skip_keys(needed: list[int], full: bool, repeats: int, cut: int) -> None:
    """Each block of queries has a number, whose bits say which blocks of keys it needs."""
    tiles = torch.tensor([[bool(bits >> j & 1) for j in range(12)] for bits in needed])
    mask = tiles.repeat_interleave(repeats, 0).repeat_interleave(32, 0).repeat_interleave(32, 1)
    if not full:
        mask &= torch.rand(mask.shape, generator=torch.Generator().manual_seed(cut)) < 0.9
    mask = mask[: 384 - cut, : 384 - cut]
    positions = torch.arange(mask.shape[1] - mask.shape[0], mask.shape[1])
    assert_fits(from_mask(mask), positions, mask.shape[1], 32, None)


@pytest.mark.parametrize(
    "places",
    [
        [0, 1, 2, 3, 4, 5],
        [0, 1, 2, 5, 6, 7, 9],
        [0, 2, 4, 5, 6, 8, 10, 11],
        [11, 7, 7, 3, 0, 5],
        [0, 6, 1, 7, 2, 9],
        [4],
    ],
)
def test_large_blocks_at_changing_distances(places: list[int]) -> None:
    """Each block of 256 queries needs one block of 32 keys: enough for a call of its own."""
    tiles = torch.nn.functional.one_hot(torch.tensor(places), 12).bool()
    mask = tiles.repeat_interleave(256, 0).repeat_interleave(32, 1)
    positions = torch.arange(384 - len(mask), 384)
    assert_fits(from_mask(mask), positions, 384, 256, None)
    # Strips are cut such that all of them can be read in place.
    strips = layout(from_mask(mask), positions, 384, block=256).strips
    assert all(strip.queries.pitch is not None for strip in strips)


@pytest.mark.parametrize("block", [16, 33, 128])
@pytest.mark.parametrize(
    "pattern",
    [
        causal(),
        window(before=40, after=3),
        causal() & (window(before=40) | columns(every=7)),
        causal() & strided(5),
        causal() & documents([i // 70 for i in range(500)]),
        causal() & padding([500, 310]),
    ],
    ids=repr,
)
def test_shuffled_queries(pattern: Pattern, block: int) -> None:
    positions = torch.randperm(500, generator=torch.Generator().manual_seed(block))
    assert_fits(pattern, positions, 500, block, pattern.batch_size)


@given(st.integers(1, 150), BATCHES, BLOCKS, st.data())
def test_fresh_strips_meet_no_row_that_was_touched(
    num_keys: int, batch: int | None, block: int, data: st.DataObject
) -> None:
    pattern = data.draw(patterns(num_keys, batch))
    positions = data.draw(query_positions(num_keys))
    found = layout(pattern, positions, num_keys, block=block)
    touched = torch.zeros(batch or 1, len(positions), dtype=torch.bool)
    started = torch.zeros_like(touched)
    for strip in found.strips:
        rows = strip.queries.index()
        # Rectangles of one strip are written at the same time.
        assert len(rows.unique()) == rows.numel()
        sequences = slice(None) if strip.batch is None else slice(strip.batch, strip.batch + 1)
        if strip.fresh:
            assert not touched[sequences, rows].any()
            started[sequences, rows] = True
        touched[sequences, rows] = True
    assert found.starts_all == bool(started.all())
    assert torch.equal(found.query_positions, positions)
    # A query that may attend to any key is touched.
    shape = (*touched.shape, num_keys)
    sees = pattern.allows(positions, range(num_keys)).expand(shape).any(dim=2)
    assert not (sees & ~touched).any()


@given(st.integers(1, 150), BATCHES, BLOCKS, st.data())
def test_strips_are_what_they_say(
    num_keys: int, batch: int | None, block: int, data: st.DataObject
) -> None:
    pattern = data.draw(patterns(num_keys, batch))
    positions = data.draw(query_positions(num_keys))
    found = layout(pattern, positions, num_keys, block=block)
    for strip in found.strips:
        assert strip.batch is None or strip.batch in range(batch or 1)
        assert len(strip.queries.start) == len(strip.keys.start) == strip.num_rectangles > 0
        for rows, most in ((strip.queries, len(positions)), (strip.keys, num_keys)):
            index = rows.index()
            assert index.shape == (strip.num_rectangles, rows.count)
            assert index.min() >= 0
            assert index.max() < most
            assert (index.diff(dim=1) > 0).all()
            assert torch.equal(index[:, 0], rows.start)
            if rows.pitch is not None:
                assert rows.table is None
                assert (rows.start.diff() == rows.pitch).all()
        if strip.mask is not None:
            assert strip.mask.shape[0] in (1, strip.num_rectangles)
            assert strip.mask.shape[1:] == (strip.queries.count, strip.keys.count)
        assert strip.num_pairs == allowed_in(strip, positions).numel()
    # A pattern whose members with a batch axis make no difference here is laid out without one.
    assert found.batch_size in (1, pattern.batch_size)
    assert found.num_pairs == sum(
        strip.num_pairs * (found.batch_size if strip.batch is None else 1) for strip in found.strips
    )


@given(st.integers(1, 150), BATCHES, BLOCKS, st.data())
def test_a_slice_of_a_strip_holds_some_of_its_rectangles(
    num_keys: int, batch: int | None, block: int, data: st.DataObject
) -> None:
    pattern = data.draw(patterns(num_keys, batch))
    positions = torch.arange(num_keys)
    for strip in layout(pattern, positions, num_keys, block=block).strips:
        cut = data.draw(st.integers(0, strip.num_rectangles))
        whole = allowed_in(strip, positions)
        for piece in (slice(None, cut), slice(cut, None)):
            part = strip[piece]
            assert part.num_rectangles == len(whole[piece])
            assert torch.equal(part.queries.index(), strip.queries.index()[piece])
            assert torch.equal(part.keys.index(), strip.keys.index()[piece])
            assert torch.equal(allowed_in(part, positions), whole[piece])


def fresh_and_not(pattern: Pattern, length: int) -> list[bool]:
    return [strip.fresh for strip in layout(pattern, torch.arange(length), length, block=8).strips]


def test_classes_of_queries_are_all_fresh() -> None:
    assert set(fresh_and_not(strided(5), 23)) == {True}
    assert len(fresh_and_not(strided(5), 23)) > 1
    assert layout(strided(5), torch.arange(23), 23, block=8).starts_all


def test_only_the_first_part_is_fresh() -> None:
    flags = fresh_and_not(causal() & (window(before=5) | columns(every=4)), 100)
    assert flags == sorted(flags, reverse=True)
    assert set(flags) == {True, False}
    assert fresh_and_not(global_at([3]), 10) == [True, False]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (causal(), True),
        (window(before=5) | columns(every=4), True),
        (padding([10, 10]), True),
        (padding([10, 0]), False),
        (causal() & documents([0] * 10), True),
        (~causal(), False),
        (neighbours([(i, 0) for i in range(10)]), True),
        (neighbours([(i, 0) for i in range(9)]), False),
    ],
    ids=repr,
)
def test_starts_all(pattern: Pattern, expected: bool) -> None:
    assert layout(pattern, torch.arange(10), 10, block=1).starts_all is expected


@pytest.mark.parametrize("pattern", [causal(), columns(every=3), strided(2) & padding([2, 3])])
def test_nothing_makes_no_strips(pattern: Pattern) -> None:
    no_queries = layout(pattern, torch.arange(0), 5, block=4)
    assert no_queries.strips == ()
    assert no_queries.starts_all
    no_keys = layout(pattern, torch.arange(3), 0, block=4)
    assert no_keys.strips == ()
    assert not no_keys.starts_all


def test_parts_that_serve_the_whole_batch_count_for_each_sequence() -> None:
    found = layout(
        window(before=5) | (columns(every=4) & padding([64, 40, 9])),
        torch.arange(64), 64, block=16,
    )  # fmt: skip
    together = sum(strip.num_pairs for strip in found.strips if strip.batch is None)
    one_by_one = sum(strip.num_pairs for strip in found.strips if strip.batch is not None)
    assert together
    assert one_by_one
    assert found.num_pairs == 3 * together + one_by_one


def test_members_that_make_no_difference_are_left_out() -> None:
    found = layout(causal() & padding([64, 64]) & prefix(70), torch.arange(64), 64, block=16)
    assert found.batch_size == 1
    assert all(strip.batch is None for strip in found.strips)
    assert {strip.pattern for strip in found.strips} <= {None, causal()}


def test_nobody_makes_no_strips() -> None:
    found = layout(~everyone(), torch.arange(100), 100, block=16)
    assert found.strips == ()
    assert found.num_pairs == 0
    assert not found.starts_all


def test_everyone_is_one_rectangle() -> None:
    (strip,) = layout(everyone(), torch.arange(100), 150, block=16).strips
    assert (strip.num_rectangles, strip.queries.count, strip.keys.count) == (1, 100, 150)
    assert strip.mask is None
    assert strip.pattern is None


def test_blocks_of_a_window_share_one_mask() -> None:
    strips = layout(window(before=64), torch.arange(32 * 40), 32 * 40, block=32).strips
    shared = [strip for strip in strips if strip.mask is not None and strip.num_rectangles > 1]
    assert [(strip.num_rectangles, len(strip.mask)) for strip in shared] == [(38, 1)]
    assert sum(strip.num_rectangles for strip in strips) == 40
    assert shared[0].queries.pitch == shared[0].keys.pitch == 32


def test_a_shared_mask_respects_documents() -> None:
    """Blocks inside of one document share a mask; those across an edge have their own."""
    ids = [i // 320 for i in range(32 * 40)]
    pattern = window(before=32) & documents(ids)
    strips = layout(pattern, torch.arange(32 * 40), 32 * 40, block=32).strips
    shared = [strip for strip in strips if strip.mask is not None and len(strip.mask) == 1]
    assert sum(strip.num_rectangles for strip in shared) >= 36
    assert_fits(pattern, torch.arange(32 * 40), 32 * 40, 32, None)
