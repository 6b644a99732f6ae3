"""What block masks of FlexAttention say of rectangles holds for every pair."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from regard.capture.flex import BlockPattern
from regard.patterns import Cover
from regard.patterns.pattern import Span
from tests.capture.test_flex import (
    BATCH,
    LENGTH,
    Rule,
    by_blocks,
    looks_back,
    looks_back_from_the_end,
    near,
    near_and_global,
    own_document,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def blocks(rule: Rule, size: tuple[int, int], *, each: bool = False, queries: int = LENGTH) -> Any:
    batch = BATCH if each else None
    return create_block_mask(rule, batch, None, queries, LENGTH, device="cpu", BLOCK_SIZE=size)


@pytest.mark.parametrize(
    ("blocks", "first_query"),
    [
        (blocks(looks_back, (16, 16)), 0),
        (blocks(looks_back, (32, 16)), 0),
        (blocks(near, (16, 32)), 0),
        (blocks(near_and_global, (16, 16)), 0),
        (blocks(own_document, (16, 16), each=True), 0),
        (blocks(own_document, (32, 16), each=True), 0),
        (blocks(looks_back_from_the_end, (16, 16), queries=50), 100),
        (blocks(looks_back_from_the_end, (16, 32), queries=50), 100),
        (by_blocks(None, full=False), 0),
        (by_blocks(looks_back, full=False), 0),
        (by_blocks(looks_back, full=True), 0),
    ],
    ids=[
        "causal",
        "causal, tall blocks",
        "window, wide blocks",
        "window and global",
        "documents",
        "documents, tall blocks",
        "fewer queries",
        "fewer queries, wide blocks",
        "by blocks",
        "by blocks and causal",
        "by full blocks",
    ],
)
def test_what_a_block_mask_says_of_rectangles_holds(blocks: BlockMask, first_query: int) -> None:
    pattern = BlockPattern(blocks, first_query)
    num_queries = blocks.shape[-2]
    places = torch.arange(first_query, first_query + num_queries)
    allowed = pattern.allows(places, torch.arange(LENGTH))
    allowed = allowed.reshape(-1, num_queries, LENGTH)
    counts = nn.functional.pad(allowed.long().cumsum(1).cumsum(2), (1, 0, 1, 0))
    query, key = rectangles(num_queries), rectangles(LENGTH)
    top, bottom = query.first[:, None], query.last[:, None] + 1
    left, right = key.first, key.last + 1
    inside = (
        counts[:, bottom, right]
        - counts[:, top, right]
        - counts[:, bottom, left]
        + counts[:, top, left]
    )
    covers = pattern.cover_spans(
        torch.arange(len(allowed))[:, None, None],
        Span(query.first[:, None] + first_query, query.last[:, None] + first_query),
        key,
    )
    assert covers.shape == inside.shape
    assert not inside[covers == Cover.NONE].any()
    full = inside == (bottom - top) * (right - left)
    assert full[covers == Cover.ALL].all()
    # It says something at all.
    assert (covers == Cover.NONE).any()


def rectangles(length: int) -> Span:
    """Return stretches of positions: single ones, whole blocks, and odd ones."""
    ends = [*range(0, length, 16), *range(5, length, 23), length]
    found = [(first, last - 1) for first in ends for last in ends if first < last]
    found += [(one, one) for one in range(0, length, 7)]
    first, last = torch.tensor(found).T
    return Span(first, last)


def test_whole_blocks_are_known_to_be_full() -> None:
    pattern = BlockPattern(blocks(looks_back, (16, 16)), 0)
    assert pattern.cover(range(64, 96), range(64)) == Cover.ALL
    assert pattern.cover(range(64, 96), range(96, 128)) == Cover.NONE
    assert pattern.cover(range(64, 96), range(64, 96)) == Cover.SOME
