"""Keys at multiples of a number."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int, Int8
from torch import Tensor

from regard.patterns.cover import Span, codes
from regard.patterns.pattern import Lattice, Pattern
from regard.patterns.whole import whole_number


@dataclass(frozen=True)
class Columns(Pattern):
    """Every position attends to the multiples of a number."""

    every: int

    key_only = True

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"columns: every must be at least 1, got {self.every}")

    def test(
        self, batch: Int[Tensor, "..."], query: Int[Tensor, "..."], key: Int[Tensor, "..."]
    ) -> Bool[Tensor, "..."]:
        return key % self.every == 0

    def cover_spans(self, batch: Int[Tensor, "..."], query: Span, key: Span) -> Int8[Tensor, "..."]:
        none = key.last // self.every * self.every < key.first
        full = (key.first == key.last) & ~none if self.every > 1 else ~none
        return codes(none, full, batch)

    def lattices(self, query_positions: Int[Tensor, "queries"], num_keys: int) -> list[Lattice]:
        queries = torch.arange(len(query_positions), device="cpu")[None]
        keys = torch.arange(0, num_keys, self.every, device="cpu")[None]
        return [Lattice(queries, keys, 1, self.every)]

    def __repr__(self) -> str:
        return f"columns(every={self.every})"


def columns(every: int) -> Pattern:
    """Let every position attend to positions 0, `every`, 2 · `every` and so on.

    >>> print(columns(every=3).draw(5))
    ■ · · ■ ·
    ■ · · ■ ·
    ■ · · ■ ·
    ■ · · ■ ·
    ■ · · ■ ·

    Args:
        every: the distance between the columns, at least 1. Listed keys are `pairs(keys=[0, 5])`.
    """
    hint = "; for listed keys write pairs(keys=[…])"
    return Columns(whole_number("columns: every", every, hint))
