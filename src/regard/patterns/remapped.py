"""A pattern whose queries and keys are counted from elsewhere, or exchanged."""

import torch
from jaxtyping import Int
from torch import Tensor

from regard.patterns.layout_cache import cached
from regard.patterns.neighbours import Neighbours
from regard.patterns.pattern import Both, Either, GatheredBlocks, Not, Pattern, Remapped


def remapped(pattern: Pattern, query: int = 0, key: int = 0, *, exchanged: bool = False) -> Pattern:
    """Return a pattern for other positions. It is cached with the pattern, and freed with it.

        causal()    key=1       exchanged
        ■ · ·       · · ·       ■ ■ ■
        ■ ■ ·       ■ · ·       · ■ ■
        ■ ■ ■       ■ ■ ·       · · ■

    Args:
        pattern: the pattern; members of a combination are remapped one by one.
        query: added to the position of a query before the pattern tests it.
        key: added to the position of a key.
        exchanged: whether keys attend to the queries that attend to them. The pattern then tests
            whether the key may attend to the query.
    """
    name = ("remapped", query, key, exchanged)
    return cached(pattern, name, lambda: _remapped(pattern, query, key, exchanged))


def _remapped(pattern: Pattern, query: int, key: int, exchanged: bool) -> Pattern:
    match pattern:
        case Both(first, second) | Either(first, second):
            return type(pattern)(*(_remapped(p, query, key, exchanged) for p in (first, second)))
        case Not(inner):
            return Not(_remapped(inner, query, key, exchanged))
        case _ if not exchanged and query == key and (not key or pattern.relative):
            return pattern
        case _:
            is_gathered = type(pattern).gathered_blocks is not Pattern.gathered_blocks
            kind = _ExchangedBlocks if exchanged and is_gathered else Remapped
            return kind(pattern, query, key, exchanged)


class _ExchangedBlocks(Remapped):
    """A pattern that touches a little of every block, and is gathered."""

    def gathered_blocks(
        self, query_positions: Int[Tensor, "queries"], num_keys: int
    ) -> list[GatheredBlocks]:
        # Rows of gathered blocks are indices; those of keys, the queries here, are positions too.
        num_queries = len(query_positions)
        assert torch.equal(query_positions + self.query, torch.arange(num_queries, device="cpu"))
        positions = torch.arange(self.key, self.key + num_keys, device="cpu")
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
