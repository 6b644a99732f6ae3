"""What a kernel is called on: equal rectangles of gathered rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.patterns.pattern import Pattern

WRITTEN_PAIRS = 1 << 22
"""Pairs up to which the masks of a layout are written down, a byte each."""


@dataclass(frozen=True)
class StripRows:
    """Equally many rows of a tensor for each rectangle of a strip.

    Rectangle r takes rows `start[r]`, `start[r] + step`, …, `count` of them; or those that
    `table[r]` lists. `pitch` is the distance from one start to the next where that is steady.
    """

    count: int
    start: Int[Tensor, "rectangles"]
    step: int = 1
    pitch: int | None = None
    table: Int[Tensor, "rectangles count"] | None = None

    @staticmethod
    def listed(table: Int[Tensor, "rectangles count"]) -> "StripRows":
        """Return rows that are listed one by one."""
        return StripRows(table.shape[1], table[:, 0], table=table)

    @staticmethod
    def stepped(start: Int[Tensor, "rectangles"], step: int, count: int) -> "StripRows":
        """Return rows that follow each other at equal distance."""
        pitch = int(start[1] - start[0]) if len(start) > 1 else 0
        regular = pitch >= 0 and bool((start.diff() == pitch).all())
        return StripRows(count, start, step, pitch if regular else None)

    def part(self, first: int, count: int) -> "StripRows":
        """Return `count` rows of each rectangle, from the `first` on."""
        if self.table is not None:
            return StripRows.listed(self.table[:, first : first + count])
        return StripRows(count, self.start + first * self.step, self.step, self.pitch)

    def index(self) -> Int[Tensor, "rectangles count"]:
        """Return the rows one by one."""
        if self.table is not None:
            return self.table
        return self.start[:, None] + self.step * torch.arange(self.count, device="cpu")

    def __getitem__(self, part: slice) -> "StripRows":
        assert part.step is None, "the pitch is that of neighbours"
        table = None if self.table is None else self.table[part]
        return StripRows(self.count, self.start[part], self.step, self.pitch, table)


@dataclass(frozen=True)
class Strip:
    """Equal rectangles of one part of a pattern, to be computed in one batched call.

    Attributes:
        batch: the sequence of the batch that the rectangles belong to; None if to each of them.
        queries: the query rows of each rectangle.
        keys: the key rows of each rectangle.
        mask: what is allowed, in each rectangle or the same in all; None if all is, or if only the
            pattern tells.
        pattern: what tells what is allowed, where the masks would take up too much memory.
        fresh: whether no earlier strip of the layout has touched these queries.
    """

    batch: int | None
    queries: StripRows
    keys: StripRows
    mask: Bool[Tensor, "rectangles_or_1 queries keys"] | None
    pattern: Pattern | None
    fresh: bool

    @property
    def num_rectangles(self) -> int:
        """The number of rectangles."""
        return len(self.queries.start)

    @property
    def num_pairs(self) -> int:
        """The number of query–key pairs that are computed, for one head."""
        return self.num_rectangles * self.queries.count * self.keys.count

    def __getitem__(self, part: slice) -> "Strip":
        """Return some of the rectangles."""
        mask = self.mask
        mask = mask[part] if mask is not None and len(mask) > 1 else mask
        return replace(self, queries=self.queries[part], keys=self.keys[part], mask=mask)

    def of_queries(self, first: int, count: int) -> "Strip":
        """Return some of the queries of each rectangle: `count` of them or those that are left."""
        count = min(count, self.queries.count - first)
        mask = None if self.mask is None else self.mask[:, first : first + count]
        return replace(self, queries=self.queries.part(first, count), mask=mask)

    def allowed(
        self, query_positions: Int[Tensor, "all_queries"], batch: int, device: torch.device
    ) -> Bool[Tensor, "rectangles_or_1 queries keys"] | None:
        """Return what is allowed in each rectangle, or None if everything is.

        Args:
            query_positions: where the queries stand.
            batch: the sequence of the batch.
            device: where the answer shall lie.
        """
        if self.mask is not None:
            return self.mask.to(device)
        if self.pattern is None:
            return None
        query = query_positions[self.queries.index()].to(device)[:, :, None]
        key = self.keys.index().to(device)[:, None, :]
        allowed = self.pattern.test(torch.tensor(batch, device=device), query, key)
        return allowed.expand(self.num_rectangles, self.queries.count, self.keys.count)


def write_masks(
    strips: Sequence[Strip], query_positions: Int[Tensor, "all_queries"]
) -> list[Strip]:
    """Write the masks of strips down if that takes little memory: they are mostly used often."""
    if sum(strip.num_pairs for strip in strips if strip.pattern is not None) > WRITTEN_PAIRS:
        return list(strips)
    here = query_positions.device
    masks = [strip.allowed(query_positions, strip.batch or 0, here) for strip in strips]
    return [replace(s, mask=m, pattern=None) for s, m in zip(strips, masks, strict=True)]
