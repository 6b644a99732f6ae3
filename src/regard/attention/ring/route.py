"""What a rank computes, receives and sends: the same on all ranks, without asking one another."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from operator import not_

import torch
from jaxtyping import Int, Int8
from torch import Tensor

from regard.attention.ring.listed_keys import KeysAmong, PatternOfListed
from regard.attention.ring.shards import Runs, Shards, positions_among
from regard.patterns import Layout, Pattern, layout
from regard.patterns.layout import Strip, StripRows
from regard.patterns.layout_cache import cached
from regard.patterns.pairs import PositionSet
from regard.patterns.pattern import Cover, Span

_MOST_RUNS = 64
"""Of more runs of queries, blocks may have several."""

_PIECE = 1024
"""Number of neighbours that are looked at together, to find rectangles without a mask."""


@dataclass(frozen=True)
class Leg:
    """The queries of one rank on the keys of another, or on its own.

    The layout counts keys in a list of those that its blocks have, ascending. A block may stick out
    of the keys of the rank; what sticks out is masked.

    Attributes:
        layout: the strips; only on a rank's own keys, which come first, may they be fresh.
        positions: position of each key.
        wanted: which of these are the rank's: the rows that are sent.
    """

    layout: Layout
    positions: Int[Tensor, "keys"]
    wanted: Int[Tensor, "rows"]


@dataclass(frozen=True)
class Route:
    """The way of one rank around the ring.

    Attributes:
        legs: in step t, what it computes with the keys of rank r − t.
        sent: in step t, which of its own rows rank r + t needs.
    """

    legs: tuple[Leg, ...]
    sent: tuple[Int[Tensor, "rows"], ...]


def route(pattern: Pattern, shards: Shards, rank: int, block: int) -> Route:
    """Return the way of a rank around the ring.

    Args:
        pattern: which keys each query may attend to.
        shards: the positions of all ranks.
        rank: the rank.
        block: queries per block.
    """
    size = len(shards.runs)

    def make() -> Route:
        order = shards.positions(rank).argsort()
        mine = shards.positions(rank)[order]
        legs = [leg(pattern, shards, rank, (rank - step) % size, block) for step in range(size)]
        theirs = [leg(pattern, shards, (rank + step) % size, rank, block) for step in range(size)]
        sent = [
            order[torch.searchsorted(mine, one.positions[one.wanted].contiguous())]
            for one in theirs
        ]
        return Route(tuple(legs), tuple(sent))

    return cached(pattern, ("ring", shards, rank, block), make)


def leg(pattern: Pattern, shards: Shards, rank: int, source: int, block: int) -> Leg:
    """Return what a rank computes with the keys of another one."""
    keys = shards.among(source)
    none = torch.arange(0, device="cpu")
    if not _meet(pattern, shards.among(rank), keys):
        return Leg(Layout((), shards.positions(rank), starts_all=False), none, none)
    found = _layout(pattern, shards, rank, source, block)
    positions = _rows(found, shards.length)
    wanted = keys.has(positions).nonzero().flatten()
    listed = _on_listed(found, positions, shards.length, first=rank == source)
    return Leg(listed, positions, wanted)


def _layout(pattern: Pattern, shards: Shards, rank: int, source: int, block: int) -> Layout:
    """Lay out the queries of a rank on the keys of another, each run of neighbours for itself.

    A block with queries of two runs would need the keys of all that lies between them. Keys that
    all queries of a run may attend to are one rectangle, which is read in place.
    """
    queries, length = shards.positions(rank), shards.length
    keys = shards.among(source)
    if max(len(shards.runs[rank]), len(keys.spans)) > _MOST_RUNS:
        return layout(pattern & KeysAmong(keys), queries, length, block=block)
    strips: list[Strip] = []
    batch_size, before = 1, 0
    for (start, stop), whole, rest in _parts(pattern, shards.runs[rank], keys):
        run = torch.arange(start, stop, device="cpu")
        found = layout(pattern & KeysAmong(rest), run, length, block=block)
        strips += [replace(one, queries=_shifted(one.queries, before)) for one in found.unwritten]
        rows = StripRows(stop - start, torch.tensor([before], device="cpu"), pitch=0)
        for first, end in whole.spans:
            columns = StripRows(end - first, torch.tensor([first], device="cpu"), pitch=0)
            strips.append(Strip(None, rows, columns, None, None, fresh=False))
        batch_size, before = max(batch_size, found.batch_size), before + stop - start
    return Layout(tuple(strips), queries, False, batch_size)


def _parts(
    pattern: Pattern, queries: Runs, keys: PositionSet
) -> list[tuple[tuple[int, int], PositionSet, PositionSet]]:
    """Return runs of queries, the keys that all queries of a run may attend to, and the others."""
    longest = max(_PIECE, *(-(-(stop - start) // _MOST_RUNS) for start, stop in queries))
    mine, theirs = (_cut(runs, longest) for runs in (queries, keys.spans))
    every = (_covers(pattern, mine, theirs) == Cover.ALL).all(dim=0)
    found: list[tuple[tuple[int, int], PositionSet, PositionSet]] = []
    for (start, stop), row in zip(mine, every.tolist(), strict=True):
        whole = positions_among(compress(theirs, row))
        rest = positions_among(compress(theirs, map(not_, row)))
        if found and found[-1][0][1] == start and found[-1][1] == whole:
            start = found.pop()[0][0]
        found.append(((start, stop), whole, rest))
    return found


def _cut(runs: Runs, longest: int) -> Runs:
    """Cut runs into pieces."""
    return tuple(
        (first, min(first + longest, stop))
        for start, stop in runs
        for first in range(start, stop, longest)
    )


def _shifted(rows: StripRows, by: int) -> StripRows:
    table = None if rows.table is None else rows.table + by
    return replace(rows, start=rows.start + by, table=table)


def _meet(pattern: Pattern, queries: PositionSet, keys: PositionSet) -> bool:
    """Whether some query may attend to some key, by the cover of their runs."""
    if not queries.spans or not keys.spans:
        return False
    return bool((_covers(pattern, queries.spans, keys.spans) != Cover.NONE).any())


def _covers(
    pattern: Pattern, queries: Sequence[tuple[int, int]], keys: Sequence[tuple[int, int]]
) -> Int8[Tensor, "batch query_runs key_runs"]:
    """Return the cover of each run of queries on each run of keys."""
    query, key = (torch.tensor(runs, device="cpu") for runs in (queries, keys))
    batch = torch.arange(pattern.batch_size or 1, device="cpu")[:, None, None]
    rows, columns = Span(query[:, :1], query[:, 1:] - 1), Span(key[:, 0], key[:, 1] - 1)
    return pattern.cover_spans(batch, rows, columns).expand(len(batch), len(query), len(key))


def _rows(found: Layout, num_keys: int) -> Int[Tensor, "keys"]:
    """Return the keys of all strips, ascending."""
    begun = torch.zeros(num_keys + 1, dtype=torch.long, device="cpu")
    for strip in found.unwritten:
        rows = strip.keys
        if rows.table is None and rows.step == 1:
            one = torch.ones_like(rows.start)
            begun.index_add_(0, rows.start, one).index_add_(0, rows.start + rows.count, -one)
        else:
            some = rows.index().flatten().unique()
            one = torch.ones_like(some)
            begun.index_add_(0, some, one).index_add_(0, some + 1, -one)
    return begun[:-1].cumsum(0).nonzero().flatten()


def _on_listed(
    found: Layout, positions: Int[Tensor, "keys"], num_keys: int, *, first: bool
) -> Layout:
    """Return a layout that counts keys in a list of positions.

    Args:
        found: the layout.
        positions: the positions of its keys, ascending.
        num_keys: number of keys of all ranks.
        first: whether it comes first; otherwise no strip is fresh.
    """
    place = torch.full((num_keys,), -1, dtype=torch.long, device="cpu")
    place[positions] = torch.arange(len(positions), device="cpu")
    strips = [
        replace(
            strip,
            keys=_moved(strip.keys, place),
            pattern=None if strip.pattern is None else PatternOfListed(strip.pattern, positions),
            fresh=strip.fresh and first,
        )
        for strip in found.unwritten
    ]
    return Layout(tuple(strips), found.query_positions, False, found.batch_size)


def _moved(rows: StripRows, place: Int[Tensor, "all_keys"]) -> StripRows:
    """Return rows at their places; regular if they still are, so that they are read in place."""
    if rows.table is None:
        first, last = place[rows.start], place[rows.start + rows.step * (rows.count - 1)]
        # Places ascend with rows, so that two ends as far apart as before have no gap between them.
        for step in (rows.step, 1):
            if bool((last - first == step * (rows.count - 1)).all()):
                return StripRows.stepped(first, step, rows.count)
    return StripRows.listed(place[rows.index()])
