"""Global tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Int, Int8
from torch import Tensor

from regard.patterns.cover import Span, codes
from regard.patterns.pattern import Lattice, Pattern
from regard.patterns.to_list import to_list
from regard.patterns.whole import whole_numbers


@dataclass(frozen=True)
class GlobalAt(Pattern):
    """Some positions attend to all, and all attend to them."""

    positions: tuple[int, ...]
    _sorted: Tensor = field(init=False, repr=False, compare=False)
    _chosen: Tensor = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        positions = torch.tensor(self.positions, dtype=torch.long, device="cpu")
        chosen = torch.zeros(self.positions[-1] + 2, dtype=torch.bool, device="cpu")
        chosen[positions] = True
        object.__setattr__(self, "_sorted", positions)
        object.__setattr__(self, "_chosen", chosen)

    def test(
        self, batch: Int[Tensor, "..."], query: Int[Tensor, "..."], key: Int[Tensor, "..."]
    ) -> Bool[Tensor, "..."]:
        return self._is_chosen(query) | self._is_chosen(key)

    def _is_chosen(self, position: Int[Tensor, "..."]) -> Bool[Tensor, "..."]:
        """Return elementwise whether a position is chosen; the last entry is for others."""
        none = len(self._chosen) - 1
        inside = (position >= 0) & (position < none)
        return self._chosen.to(position.device)[torch.where(inside, position, none)]

    def cover_spans(self, batch: Int[Tensor, "..."], query: Span, key: Span) -> Int8[Tensor, "..."]:
        some_queries, every_query = self._count(query)
        some_keys, every_key = self._count(key)
        return codes(~(some_queries | some_keys), every_query | every_key, batch)

    def _count(self, span: Span) -> tuple[Tensor, Tensor]:
        end = torch.searchsorted(self._sorted, span.last.contiguous(), right=True)
        found = end - torch.searchsorted(self._sorted, span.first.contiguous())
        return found > 0, found == span.last - span.first + 1

    def lattices(self, query_positions: Int[Tensor, "queries"], num_keys: int) -> list[Lattice]:
        every_query = torch.arange(len(query_positions), device="cpu")
        chosen = torch.isin(query_positions, self._sorted)
        rest = torch.arange(num_keys, device="cpu")[
            ~torch.isin(torch.arange(num_keys, device="cpu"), self._sorted)
        ]
        seen_by_all = Lattice(every_query[None], self._sorted[None], 1, None)
        see_all = Lattice(every_query[chosen][None], rest[None], None, None)
        return [seen_by_all, see_all]

    def check(self, batch: int, queries: range, num_keys: int) -> None:
        if self.positions[-1] >= num_keys:
            raise ValueError(
                f"global_at: positions must be below the number of keys ({num_keys}), "
                f"got {self.positions[-1]}"
            )

    def __repr__(self) -> str:
        return f"global_at({list(self.positions)})"


def global_at(positions: Sequence[int] | Int[Tensor, "chosen"]) -> Pattern:
    """Let some positions attend to all, and all attend to them (global tokens).

    >>> print(global_at([1]).draw(4))
    · ■ · ·
    ■ ■ ■ ■
    · ■ · ·
    · ■ · ·

    Args:
        positions: the positions, at least one, each at least 0.
    """
    values = whole_numbers(positions)
    if values is None or values.dim() != 1 or len(values) == 0 or values.min() < 0:
        raise ValueError(
            "global_at: positions must be a non-empty list of integers, at least 0, "
            f"got {positions!r}"
        )
    return GlobalAt(tuple(sorted(set(to_list(values)))))
