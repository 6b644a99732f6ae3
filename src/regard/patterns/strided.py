"""Keys at multiples of a stride from the query."""

from collections import defaultdict
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int, Int8
from torch import Tensor

from regard.patterns.cover import Span, codes
from regard.patterns.pattern import Lattice, Pattern
from regard.patterns.to_list import to_list
from regard.patterns.whole import whole_number


@dataclass(frozen=True)
class Strided(Pattern):
    """A position attends to those at a distance that is a multiple of the stride."""

    stride: int
    relative = True

    def __post_init__(self) -> None:
        if self.stride < 1:
            raise ValueError(f"strided: stride must be at least 1, got {self.stride}")

    def test(
        self, batch: Int[Tensor, "..."], query: Int[Tensor, "..."], key: Int[Tensor, "..."]
    ) -> Bool[Tensor, "..."]:
        return (query - key) % self.stride == 0

    def cover_spans(self, batch: Int[Tensor, "..."], query: Span, key: Span) -> Int8[Tensor, "..."]:
        low, high = query.first - key.last, query.last - key.first
        none = high // self.stride * self.stride < low
        every = (low == high) & ~none if self.stride > 1 else ~none
        return codes(none, every, batch)

    def lattices(self, query_positions: Int[Tensor, "queries"], num_keys: int) -> list[Lattice]:
        # One class per remainder, with all its pairs allowed. Classes of one size are stacked.
        order = torch.argsort(query_positions % self.stride, stable=True)
        counts = torch.bincount(query_positions % self.stride, minlength=self.stride)
        same_size: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for remainder, queries in enumerate(order.split(to_list(counts))):
            keys = (
                torch.arange(remainder, num_keys, self.stride, device="cpu")
                if remainder < num_keys
                else order[:0]
            )
            if len(queries) and len(keys):
                same_size[len(queries), len(keys)].append((queries, keys))
        consecutive = bool((query_positions.diff() == 1).all())
        step = self.stride if consecutive else None
        return [
            Lattice(
                torch.stack([queries for queries, _ in classes]),
                torch.stack([keys for _, keys in classes]),
                step,
                self.stride,
            )
            for classes in same_size.values()
        ]

    def __repr__(self) -> str:
        return f"strided({self.stride})"


def strided(stride: int) -> Pattern:
    """Let each position attend to itself and to every `stride`-th position from it.

    >>> print(strided(3).draw(6))
    ■ · · ■ · ·
    · ■ · · ■ ·
    · · ■ · · ■
    ■ · · ■ · ·
    · ■ · · ■ ·
    · · ■ · · ■

    Args:
        stride: the distance, at least 1.
    """
    return Strided(whole_number("strided: stride", stride))
