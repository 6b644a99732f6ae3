"""A matrix of a sequence that several processes share: each has the rows of its own queries."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.call import Index, detached
from regard.attention.ring.run import RingInputs
from regard.attention.ring.shards import ShardPositions, runs_of
from regard.distributed.ranks import Ranks
from regard.matrix.arguments import check_given
from regard.matrix.reduction import AnyReduction
from regard.matrix.scores import Scores
from regard.matrix.source import Source, as_tensor, read
from regard.matrix.view import View
from regard.versions import Versions


@dataclass(frozen=True, eq=False)
class ShardedQueries:
    """The queries of a sequence, of which this rank has some; see `LazyTensor`.

    Attributes:
        own: the queries of this rank, [batch, heads, local, key_dim].
        shards: the positions of all ranks.
        ranks: the ranks.
    """

    own: Float[Tensor, "batch heads local key_dim"]
    shards: ShardPositions
    ranks: Ranks
    _versions: Versions = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_versions", Versions([("query", self.own)]))

    @property
    def shape(self) -> tuple[int, ...]:
        batch, heads, _, key_dim = self.own.shape
        return batch, heads, self.shards.length, key_dim

    @property
    def dtype(self) -> torch.dtype:
        return self.own.dtype

    @property
    def device(self) -> torch.device:
        return self.own.device

    @cached_property
    def _places(self) -> Int[Tensor, "length"]:
        """The place of each position among those of this rank, −1 if it has another rank."""
        positions = self.shards.positions(self.ranks.rank)
        places = torch.full((self.shards.length,), -1, device="cpu")
        places[positions] = torch.arange(len(positions), device="cpu")
        return places

    def read(self, *indices: Index) -> Tensor:
        """Read queries of this rank.

        Raises:
            IndexError: another rank has one of them.
        """
        batch, heads, rows = indices
        places = self._places[as_tensor(rows)]
        if bool((places < 0).any()):
            missing = int(as_tensor(rows)[places < 0][0])
            raise IndexError(
                f"query {missing} is on another rank: use summarize, or rows of this rank"
            )
        return read(self.own, batch, heads, places)

    def modified(self) -> bool:
        return self._versions.modified() is not None

    def runs(self, queries: Index) -> Iterator[slice]:
        """Yield runs of those of some queries that this rank has."""
        here = (self._places[as_tensor(queries)] >= 0).nonzero().flatten()
        yield from (slice(start, stop) for start, stop in runs_of(here))


def sharded_scores(
    call: RingInputs, sinks: Float[Tensor, "heads"] | None, lse: Tensor | None
) -> Scores:
    """Return the source of a matrix of all ranks, which they must all call.

    Args:
        call: the checked arguments of this rank.
        sinks: the sink score of each head. It is copied.
        lse: the log-sum-exp of the queries of this rank, [batch, heads, local]. It is copied.

    Raises:
        TypeError: sinks or lse are no tensors.
        ValueError: they don't fit the call, or the ranks have different sinks.
    """
    inputs, shards, ranks = call.inputs, call.shards, call.ranks
    query, key, _ = inputs.tensors

    def check() -> list[float] | None:
        check_given("lse", lse, query.device, tuple(query.shape[:3]))
        check_given("sinks", sinks, query.device, (query.shape[1],))
        return None if sinks is None else sinks.tolist()

    ranks.same("sinks", check)

    # Rows of a tile need all their keys.
    keys = shards.joined(ranks.gather(lambda: key.detach().cpu()), axis=2)

    known = None
    if lse is not None:
        known = lse.new_full((*lse.shape[:2], shards.length), torch.nan)
        known[:, :, shards.positions(ranks.rank).to(lse.device)] = lse.detach()

    whole = replace(
        inputs,
        query=ShardedQueries(detached(query), shards, ranks),
        key=keys.to(key.device),
        value=None,
        sinks=sinks,
        positions=range(shards.length),
        lse=known,
    )
    return Scores(whole.kept())


def sharded_queries(source: Source) -> ShardedQueries | None:
    """Return the queries of a source, if several ranks share them."""
    query = source.call.query if isinstance(source, Scores) else None
    return query if isinstance(query, ShardedQueries) else None


def with_own_heads(view: View) -> tuple[View, int]:
    """Return a view of all queries of some heads, instead of some queries of all heads.

    The heads are shared out among the ranks, which must all call it. A rank gets as many queries
    as it had.

    Args:
        view: a whole matrix whose queries several ranks share.

    Returns:
        The view of the heads of this rank, and the number of the first of them.

    Raises:
        ValueError: the view is a part, there is a bias for each head, or there are fewer heads than
            ranks.
    """
    source, queries = view.source, sharded_queries(view.source)
    assert isinstance(source, Scores)
    assert queries is not None
    rank, size = queries.ranks.rank, queries.ranks.size
    heads, key_heads = source.shape[1], source.call.key.shape[1]
    if view.sizes != source.shape:
        raise ValueError("a matrix of several ranks must be whole, not a part")
    call = source.call
    if call.bias is not None and call.bias.num_heads:
        raise ValueError("a matrix of several ranks must have no bias for each head")
    if heads < size:
        raise ValueError(f"there must be a head for each of {size} ranks, got {heads}")

    # 1. The heads of each rank. Those of a group stay together, if there are enough key heads.
    units = key_heads if key_heads >= size else heads
    cuts = [units * cut // size * (heads // units) for cut in range(size + 1)]
    own = range(cuts[rank], cuts[rank + 1])
    own_key_heads = [head * key_heads // heads for head in own]
    if units == key_heads:
        own_key_heads = sorted(set(own_key_heads))

    # 2. Their queries of all ranks, in the order of positions.
    # A slice would be sent with all of its storage.
    parts = [queries.own[:, first:stop].cpu().clone() for first, stop in pairwise(cuts)]
    own_queries = queries.shards.joined(queries.ranks.deal(parts), axis=2)

    own_heads = replace(
        call,
        query=own_queries.to(queries.device),
        key=read(call.key, range(len(view.batch)), torch.tensor(own_key_heads), view.keys),
        sinks=None if call.sinks is None else call.sinks[own.start : own.stop],
        lse=None,
    )
    return View.whole(Scores(own_heads)), own.start


def rows_here(view: View) -> Iterator[slice]:
    """Yield the rows of a view that this process has, in runs of neighbours."""
    queries = sharded_queries(view.source)
    if queries is None:
        yield slice(0, len(view.queries))
    else:
        yield from queries.runs(view.queries)


def merged_over_ranks(
    view: View, reductions: Sequence[AnyReduction], states: Sequence[Any]
) -> Sequence[Any]:
    """Merge states with those of other ranks, if several share the queries."""
    queries = sharded_queries(view.source)
    if queries is None:
        return states
    by_reduction = zip(*queries.ranks.gather(lambda: list(states)), strict=True)
    pairs = zip(reductions, by_reduction, strict=True)
    return [reduce(reduction.merge, parts) for reduction, parts in pairs]
