"""Split a pattern into disjoint parts: a block-shaped one, and gathered ones."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from regard.patterns.pattern import Both, Either, Everyone, GatheredBlocks, Not, Pattern


@dataclass(frozen=True)
class PatternPart:
    """The pairs that `pattern` allows on the blocks gathered by another; on all pairs if None."""

    gathered_by: Pattern | None
    pattern: Pattern

    def gathered_blocks(
        self, query_positions: Int[Tensor, "queries"], num_keys: int
    ) -> list[GatheredBlocks]:
        """Return the gathered blocks of the part, without empty ones."""
        if self.gathered_by is not None:
            all_blocks = self.gathered_by.gathered_blocks(query_positions, num_keys) or []
            return [b for b in all_blocks if b.queries.numel() and b.keys.numel()]
        rows = torch.arange(max(len(query_positions), num_keys), device="cpu")[None]
        return [GatheredBlocks(rows[:, : len(query_positions)], rows[:, :num_keys], 1, 1)]


def parts(pattern: Pattern) -> list[PatternPart]:
    """Split a pattern into disjoint parts, of which at most the first is block-shaped.

    >>> from regard.patterns import causal, columns, window
    >>> for part in parts(causal() & (window(before=63) | columns(every=64))):
    ...     print(part.gathered_by, "where", part.pattern)
    None where causal() & window(before=63)
    columns(every=64) where causal() & ~(causal() & window(before=63))
    """
    block_shaped, gathered = _split(pattern)
    disjoint = [] if block_shaped is None else [PatternPart(None, block_shaped)]
    taken = block_shaped
    for source, rest in gathered:
        disjoint.append(PatternPart(source, rest if taken is None else _both(rest, Not(taken))))
        taken = _either(taken, _both(source, rest))
    return disjoint


_Gathered = list[tuple[Pattern, Pattern]]
"""Gathered patterns, and which of their pairs are allowed."""


def _split(pattern: Pattern) -> tuple[Pattern | None, _Gathered]:
    """Write a pattern as `block-shaped | (source & rest) | (source & rest) …`."""
    match pattern:
        case Either(first, second):
            (block_a, gathered_a), (block_b, gathered_b) = _split(first), _split(second)
            return _either(block_a, block_b), gathered_a + gathered_b

        case Both(first, second):
            (block_a, gathered_a), (block_b, gathered_b) = _split(first), _split(second)
            both = None if block_a is None or block_b is None else _both(block_a, block_b)
            gathered = [(source, _both(rest, second)) for source, rest in gathered_a]
            if block_a is not None:
                gathered += [(source, _both(block_a, rest)) for source, rest in gathered_b]
            return both, gathered

        case _ if type(pattern).gathered_blocks is not Pattern.gathered_blocks:
            return None, [(pattern, Everyone())]

        case _:
            return pattern, []


def _both(first: Pattern, second: Pattern) -> Pattern:
    if isinstance(first, Everyone):
        return second
    return first if isinstance(second, Everyone) else Both(first, second)


def _either(first: Pattern | None, second: Pattern | None) -> Pattern | None:
    if first is None or second is None:
        return second if first is None else first
    return Either(first, second)
