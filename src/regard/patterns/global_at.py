"""Global tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Int
from torch import Tensor

from regard.patterns.integers import to_list, whole_numbers
from regard.patterns.pattern import Bools, Covers, GatheredBlocks, Ints, Pattern, Span, codes


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

    def test(self, batch: Ints, query: Ints, key: Ints) -> Bools:
        return self._is_chosen(query) | self._is_chosen(key)

    def _is_chosen(self, position: Ints) -> Bools:
        """Return elementwise whether a position is chosen; the last entry is for others."""
        none = len(self._chosen) - 1
        inside = (position >= 0) & (position < none)
        return self._chosen.to(position.device)[torch.where(inside, position, none)]

    def cover_spans(self, batch: Ints, query: Span, key: Span) -> Covers:
        any_query, every_query = self._count(query)
        any_key, every_key = self._count(key)
        return codes(~(any_query | any_key), every_query | every_key, batch)

    def _count(self, span: Span) -> tuple[Bools, Bools]:
        """Return elementwise whether any, and whether all positions of a span are chosen."""
        end = torch.searchsorted(self._sorted, span.last.contiguous(), right=True)
        num_chosen = end - torch.searchsorted(self._sorted, span.first.contiguous())
        return num_chosen > 0, num_chosen == span.last - span.first + 1

    def gathered_blocks(
        self, query_positions: Int[Tensor, "queries"], num_keys: int
    ) -> list[GatheredBlocks]:
        queries, keys = (torch.arange(n, device="cpu") for n in (len(query_positions), num_keys))
        global_queries = queries[torch.isin(query_positions, self._sorted)]
        other_keys = keys[~torch.isin(keys, self._sorted)]
        return [
            GatheredBlocks(queries[None], self._sorted[None], 1, None),
            GatheredBlocks(global_queries[None], other_keys[None], None, None),
        ]

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
