"""Strips: equal rectangles for one kernel call."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.patterns.pattern import Pattern

WRITTEN_PAIRS = 1 << 22
"""Largest number of pairs for which the masks of a layout are materialised, a byte each."""


@dataclass(frozen=True)
class StripRows:
    """The rows of a tensor for each rectangle of a strip, equally many.

    Rectangle r has the `count` rows `start[r]`, `start[r] + step`, …; or those in `table[r]`.
    `pitch` is the distance between consecutive starts if it is constant.
    """

    count: int
    start: Int[Tensor, "rectangles"]
    step: int = 1
    pitch: int | None = None
    table: Int[Tensor, "rectangles count"] | None = None

    @staticmethod
    def listed(table: Int[Tensor, "rectangles count"]) -> "StripRows":
        """Return rows listed in a table."""
        return StripRows(table.shape[1], table[:, 0], table=table)

    @staticmethod
    def stepped(start: Int[Tensor, "rectangles"], step: int, count: int) -> "StripRows":
        """Return rows at a constant step."""
        pitch = int(start[1] - start[0]) if len(start) > 1 else 0
        regular = pitch >= 0 and bool((start.diff() == pitch).all())
        return StripRows(count, start, step, pitch if regular else None)

    def part(self, first: int, count: int) -> "StripRows":
        """Return `count` rows of each rectangle, from `first` on."""
        if self.table is not None:
            return StripRows.listed(self.table[:, first : first + count])
        return StripRows(count, self.start + first * self.step, self.step, self.pitch)

    def index(self) -> Int[Tensor, "rectangles count"]:
        """Return the index of every row."""
        if self.table is not None:
            return self.table
        return self.start[:, None] + self.step * torch.arange(self.count, device="cpu")

    def __getitem__(self, part: slice) -> "StripRows":
        assert part.step is None, "the pitch is that of neighbours"
        table = None if self.table is None else self.table[part]
        return StripRows(self.count, self.start[part], self.step, self.pitch, table)


@dataclass(frozen=True)
class Strip:
    """Equal rectangles of one part of a pattern: one batched kernel call.

    Attributes:
        batch: the sequence of the batch; None if the rectangles hold for all.
        queries: the query rows of each rectangle.
        keys: the key rows of each rectangle.
        mask: the mask of each rectangle, or of all; None if all pairs are allowed or `pattern` is
            set.
        pattern: computes the mask, if that is too large to keep.
        fresh: whether no earlier strip of the layout has these queries.
    """

    batch: int | None
    queries: StripRows
    keys: StripRows
    mask: Bool[Tensor, "rectangles_or_1 queries keys"] | None
    pattern: Pattern | None
    fresh: bool

    @property
    def num_rectangles(self) -> int:
        return len(self.queries.start)

    @property
    def num_pairs(self) -> int:
        """The number of computed query–key pairs per head."""
        return self.num_rectangles * self.queries.count * self.keys.count

    def __getitem__(self, part: slice) -> "Strip":
        mask = self.mask
        mask = mask[part] if mask is not None and len(mask) > 1 else mask
        return replace(self, queries=self.queries[part], keys=self.keys[part], mask=mask)

    def of_queries(self, first: int, count: int) -> "Strip":
        """Return up to `count` queries of each rectangle, from `first` on."""
        count = min(count, self.queries.count - first)
        mask = None if self.mask is None else self.mask[:, first : first + count]
        return replace(self, queries=self.queries.part(first, count), mask=mask)

    def allowed(
        self, query_positions: Int[Tensor, "all_queries"], batch: int, device: torch.device
    ) -> Bool[Tensor, "rectangles_or_1 queries keys"] | None:
        """Return the mask of each rectangle, or None if all pairs are allowed.

        Args:
            query_positions: position of each query.
            batch: the sequence of the batch.
            device: device of the result.
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
    """Materialise the masks of strips if they are small: most layouts are used often."""
    if sum(strip.num_pairs for strip in strips if strip.pattern is not None) > WRITTEN_PAIRS:
        return list(strips)
    here = query_positions.device
    masks = [strip.allowed(query_positions, strip.batch or 0, here) for strip in strips]
    return [replace(s, mask=m, pattern=None) for s, m in zip(strips, masks, strict=True)]
