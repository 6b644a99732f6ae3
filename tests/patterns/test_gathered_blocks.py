"""The gathered rectangles that a pattern offers, and the disjoint parts that it is cut into."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.patterns import (
    Pattern,
    causal,
    columns,
    documents,
    everyone,
    from_mask,
    global_at,
    padding,
    prefix,
    strided,
    window,
)
from regard.patterns.parts import parts
from regard.patterns.pattern import GatheredBlocks
from tests.strategies import leaves, patterns, query_positions

BATCHES = st.sampled_from([None, 1, 3])


def is_gathered(pattern: Pattern) -> bool:
    return type(pattern).gathered_blocks is not Pattern.gathered_blocks


def pairs_in(
    gathered_blocks: list[GatheredBlocks], num_queries: int, num_keys: int
) -> torch.Tensor:
    """Count how often each pair of rows lies in one of the rectangles."""
    count = torch.zeros(num_queries, num_keys, dtype=torch.long)
    for blocks in gathered_blocks:
        for queries, keys in zip(blocks.queries, blocks.keys, strict=True):
            count[queries[:, None], keys] += 1
    return count


def assert_well_formed(blocks: GatheredBlocks) -> None:
    for rows, step in zip(blocks[:2], blocks[2:], strict=True):
        assert (rows.diff(dim=1) > 0).all()
        assert step is None or (rows.diff(dim=1) == step).all()


@given(st.integers(1, 60), st.data())
def test_gathered_blocks_hold_exactly_the_allowed_pairs(num_keys: int, data: st.DataObject) -> None:
    pattern = data.draw(leaves(num_keys).filter(is_gathered))
    positions = data.draw(query_positions(num_keys, anywhere=True))
    gathered_blocks = pattern.gathered_blocks(positions, num_keys)
    assert gathered_blocks is not None
    for blocks in gathered_blocks:
        assert_well_formed(blocks)
    expected = pattern.allows(positions, range(num_keys)).long()
    assert torch.equal(pairs_in(gathered_blocks, len(positions), num_keys), expected)


@pytest.mark.parametrize("stride", [1, 2, 5, 13, 17])
@pytest.mark.parametrize(("first_query", "num_queries"), [(0, 13), (12, 1), (4, 9), (7, 3)])
def test_strided_at_an_offset(stride: int, first_query: int, num_queries: int) -> None:
    positions = torch.arange(first_query, first_query + num_queries)
    gathered_blocks = strided(stride).gathered_blocks(positions, 13)
    assert gathered_blocks is not None
    for blocks in gathered_blocks:
        assert_well_formed(blocks)
        assert (blocks.query_step, blocks.key_step) == (stride, stride)
    expected = strided(stride).allows(positions, range(13)).long()
    assert torch.equal(pairs_in(gathered_blocks, num_queries, 13), expected)


def test_classes_of_equal_size_are_stacked() -> None:
    # 23 = 4 · 5 + 3: three remainders have five members, two have four.
    gathered_blocks = strided(5).gathered_blocks(torch.arange(23), 23)
    assert gathered_blocks is not None
    assert sorted(tuple(one.queries.shape) for one in gathered_blocks) == [(2, 4), (3, 5)]


def test_rows_of_scattered_queries_must_be_gathered() -> None:
    gathered_blocks = strided(3).gathered_blocks(torch.tensor([8, 1, 2, 5]), 9)
    assert gathered_blocks is not None
    assert all(blocks.query_step is None for blocks in gathered_blocks)


@pytest.mark.parametrize(
    "pattern",
    [
        everyone(),
        causal(),
        window(before=3),
        prefix(3),
        documents([0, 1, 1]),
        padding([2, 3]),
        from_mask(torch.eye(3).bool()),
        causal() & columns(every=2),
        ~columns(every=2),
    ],
    ids=repr,
)
def test_other_patterns_offer_none(pattern: Pattern) -> None:
    assert pattern.gathered_blocks(torch.arange(3), 3) is None


@given(st.integers(1, 60), BATCHES, st.data())
def test_parts_are_disjoint_and_make_up_the_pattern(
    num_keys: int, batch: int | None, data: st.DataObject
) -> None:
    pattern = data.draw(patterns(num_keys, batch))
    positions = data.draw(query_positions(num_keys))
    shape = (batch or 1, len(positions), num_keys)
    count = torch.zeros(shape, dtype=torch.long)
    for part in parts(pattern):
        gathered_blocks = part.gathered_blocks(positions, num_keys)
        for blocks in gathered_blocks:
            assert blocks.queries.numel()
            assert blocks.keys.numel()
            assert_well_formed(blocks)
        held = pairs_in(gathered_blocks, len(positions), num_keys)
        count += held * part.pattern.allows(positions, range(num_keys)).expand(shape)
    assert torch.equal(count, pattern.allows(positions, range(num_keys)).expand(shape).long())


@given(st.integers(1, 30), BATCHES, st.data())
def test_at_most_the_first_part_is_block_shaped(
    num_keys: int, batch: int | None, data: st.DataObject
) -> None:
    found = parts(data.draw(patterns(num_keys, batch)))
    assert found
    assert all(part.gathered_by is not None for part in found[1:])


def test_a_union_of_gathered_patterns_has_no_block_shaped_part() -> None:
    found = parts(causal() & (columns(every=4) | strided(3) | global_at([0])))
    assert [part.gathered_by for part in found] == [columns(every=4), strided(3), global_at([0])]


def test_an_intersection_of_gathered_patterns_is_gathered_once() -> None:
    found = parts(columns(every=4) & strided(3))
    assert [part.gathered_by for part in found] == [columns(every=4)]
    assert found[0].pattern == strided(3)
