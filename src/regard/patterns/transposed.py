"""A pattern with queries and keys exchanged."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int, Int8
from torch import Tensor

from regard.patterns.layout_cache import cached
from regard.patterns.neighbours import Neighbours
from regard.patterns.pattern import Both, Either, GatheredBlocks, Not, Pattern, Span


def transposed(pattern: Pattern, first: int = 0) -> Pattern:
    """Return the pattern by which keys attend to the queries that attend to them.

        causal      transposed
        ■ · ·       ■ ■ ■
        ■ ■ ·       · ■ ■
        ■ ■ ■       · · ■

    Args:
        pattern: the pattern.
        first: the position of the first query, which becomes the key at 0.
    """
    return cached(pattern, ("transposed", first), lambda: _exchanged(pattern, first))


def _exchanged(pattern: Pattern, first: int) -> Pattern:
    match pattern:
        case Both(one, other) | Either(one, other):
            return type(pattern)(_exchanged(one, first), _exchanged(other, first))
        case Not(inner):
            return Not(_exchanged(inner, first))
        case _ if type(pattern).gathered_blocks is not Pattern.gathered_blocks:
            return _TransposedBlocks(pattern, first)
        case _:
            return _Transposed(pattern, first)


# Compared by identity: kept with the pattern that it is made from, and freed with it.
@dataclass(frozen=True, eq=False)
class _Transposed(Pattern):
    """A key's queries become a query's keys.

    Attributes:
        pattern: the pattern.
        first: the position of the query that becomes key 0.
    """

    pattern: Pattern
    first: int

    @property
    def relative(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.pattern.relative

    @property
    def batch_size(self) -> int | None:
        return self.pattern.batch_size

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.pattern.tensors

    def test(
        self, batch: Int[Tensor, "..."], query: Int[Tensor, "..."], key: Int[Tensor, "..."]
    ) -> Bool[Tensor, "..."]:
        return self.pattern.test(batch, key + self.first, query)

    def cover_spans(self, batch: Int[Tensor, "..."], query: Span, key: Span) -> Int8[Tensor, "..."]:
        queries = Span(key.first + self.first, key.last + self.first)
        return self.pattern.cover_spans(batch, queries, query)

    def __repr__(self) -> str:
        return f"transposed({self.pattern!r}, first={self.first})"


class _TransposedBlocks(_Transposed):
    """A pattern that touches a little of every block, and is gathered."""

    def gathered_blocks(
        self, query_positions: Int[Tensor, "queries"], num_keys: int
    ) -> list[GatheredBlocks]:
        # Rows of gathered blocks are indices; those of keys, the queries here, are positions too.
        num_queries = len(query_positions)
        assert torch.equal(query_positions, torch.arange(num_queries, device="cpu"))
        positions = torch.arange(self.first, self.first + num_keys, device="cpu")
        exchanged: list[GatheredBlocks] = []
        for queries, keys, query_step, key_step in (
            self.pattern.gathered_blocks(positions, num_queries) or []
        ):
            if len(keys.unique()) == keys.numel():
                exchanged.append(GatheredBlocks(keys, queries, key_step, query_step))
            else:
                # A row may be in one class only, as classes are computed at once.
                pairs = torch.broadcast_tensors(keys[:, None, :], queries[:, :, None])
                edges = torch.stack([places.flatten() for places in pairs], dim=1)
                exchanged += Neighbours(edges).gathered_blocks(query_positions, num_keys)
        return exchanged
