"""What a kernel is called on: equal rectangles of gathered rows."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.patterns.pattern import Pattern


@dataclass(frozen=True)
class Rows:
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
    def listed(table: Int[Tensor, "rectangles count"]) -> "Rows":
        """Return rows that are listed one by one."""
        return Rows(table.shape[1], table[:, 0], table=table)

    @staticmethod
    def stepped(start: Int[Tensor, "rectangles"], step: int, count: int) -> "Rows":
        """Return rows that follow each other at equal distance."""
        pitch = int(start[1] - start[0]) if len(start) > 1 else 0
        regular = pitch >= 0 and bool((start.diff() == pitch).all())
        return Rows(count, start, step, pitch if regular else None)

    def part(self, first: int, count: int) -> "Rows":
        """Return `count` rows of each rectangle, from the `first` on."""
        if self.table is not None:
            return Rows.listed(self.table[:, first : first + count])
        return Rows(count, self.start + first * self.step, self.step, self.pitch)

    def index(self) -> Int[Tensor, "rectangles count"]:
        """Return the rows one by one."""
        if self.table is not None:
            return self.table
        return self.start[:, None] + self.step * torch.arange(self.count)

    def __getitem__(self, part: slice) -> "Rows":
        assert part.step is None, "the pitch is that of neighbours"
        table = None if self.table is None else self.table[part]
        return Rows(self.count, self.start[part], self.step, self.pitch, table)


@dataclass(frozen=True)
class Strip:
    """Equal rectangles of one part of a pattern, to be computed in one batched call.

    Attributes:
        batch: the sequence of the batch that the rectangles belong to; None if to each of them.
        queries: the query rows of each rectangle.
        keys: the key rows of each rectangle.
        mask: what is allowed, the same in every rectangle; None if all is, or if it differs.
        pattern: what is allowed, where it differs from rectangle to rectangle.
        fresh: whether no earlier strip of the layout has touched these queries.
    """

    batch: int | None
    queries: Rows
    keys: Rows
    mask: Bool[Tensor, "queries keys"] | None
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
        return replace(self, queries=self.queries[part], keys=self.keys[part])
