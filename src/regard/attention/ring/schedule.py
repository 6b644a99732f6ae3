"""The schedule of a ring: what each rank computes, receives and sends, without asking the others.

R ranks share a sequence. In step t, rank r attends to the keys of rank r − t, so that no two ranks
read from the same one. It has them when the step begins, and those of step t + 1 are on their way:

    step       0    1    2    3
    rank 0     0    3    2    1        whose keys it attends to
    rank 1     1    0    3    2
    rank 2     2    1    0    3
    rank 3     3    2    1    0

Partial results of a row are joined by their log-sum-exp (`block_sparse`). That is Ring Attention
(Liu et al., "Ring Attention with Blockwise Transformers for Near-Infinite Context", 2023). There,
whole shards pass from neighbour to neighbour; here, a rank sends to another the rows that this one
needs, and no message if it needs none.

Both compute which rows these are, since the pattern and all positions are known on all ranks: those
in the blocks of the layout of the queries. Blocks of keys begin at multiples of their size, so they
may stick out of the keys of the sender. Here it has the keys 3 to 8, in blocks of 4:

    position            0  1  2  3 | 4  5  6  7 | 8  9 10 11
    keys of the sender  ·  ·  ·  ■ | ■  ■  ■  ■ | ■  ·  ·  ·
    pairs of query 9    ·  ·  ·  · | ·  ·  ■  ■ | ■  ·  ·  ·    window(before=3), its own key aside
    list of keys                   | 0  1  2  3 | 4  5  6  7    those of the two blocks
    rows sent                      | ■  ■  ■  ■ | ■

The layout counts keys in this list, and memory is allocated for it only. Rows of the list that the
sender does not have are 0, and masked. Rows at a constant distance mostly keep one in the list, and
are then still read in place.

Cost: a step takes the time of its pairs, or of the next message if that is longer. At most two
remote shards are in memory. A schedule takes up to 2 R layouts of the queries of a rank, and is
cached with the pattern.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from operator import not_

import torch
from jaxtyping import Int, Int8
from torch import Tensor

from regard.attention.choose import RankWork
from regard.attention.ring.shards import PositionRuns, ShardPositions, position_set
from regard.patterns import Layout, Pattern, layout
from regard.patterns.layout import Strip, StripRows
from regard.patterns.layout_cache import cached
from regard.patterns.pairs import Pairs, PositionSet
from regard.patterns.pattern import Cover, Span

_MOST_RUNS = 64
"""Of more runs of queries, blocks may have several."""

_RUN_LENGTH = 1024
"""Longer runs are cut before their cover is asked, to find rectangles without a mask. The longest
are cut into `_MOST_RUNS`."""


@dataclass(frozen=True)
class RingStep:
    """The queries of one rank on the keys of another, or on its own.

    The layout counts keys in a list of those that its blocks have, ascending.

    Attributes:
        layout: the strips; only on a rank's own keys, which come first, may they be fresh.
        positions: position of each key in the list.
        owned: index of those that the other rank has: the rows that it sends.
    """

    layout: Layout
    positions: Int[Tensor, "keys"]
    owned: Int[Tensor, "rows"]


@dataclass(frozen=True)
class RingSchedule:
    """All steps of one rank.

    Attributes:
        steps: in step t, what it computes with the keys of rank r − t.
        sent: in step t, which of its own rows rank r + t needs.
    """

    steps: tuple[RingStep, ...]
    sent: tuple[Int[Tensor, "rows"], ...]


def ring_schedule(pattern: Pattern, shards: ShardPositions, rank: int, block: int) -> RingSchedule:
    """Return the schedule of a rank.

    Args:
        pattern: which keys each query may attend to.
        shards: the positions of all ranks.
        rank: the rank.
        block: queries per block.
    """
    size = len(shards.runs)

    def make() -> RingSchedule:
        steps = [ring_step(pattern, shards, rank, (rank - t) % size, block) for t in range(size)]
        remote = [ring_step(pattern, shards, (rank + t) % size, rank, block) for t in range(size)]

        # Positions of this rank may be in any order: find those that a remote step needs.
        order = shards.positions(rank).argsort()
        ascending = shards.positions(rank)[order]
        needed = (step.positions[step.owned].contiguous() for step in remote)
        sent = [order[torch.searchsorted(ascending, positions)] for positions in needed]
        return RingSchedule(tuple(steps), tuple(sent))

    return cached(pattern, ("ring", shards, rank, block), make)


def ring_step(
    pattern: Pattern, shards: ShardPositions, rank: int, source: int, block: int
) -> RingStep:
    """Return what a rank computes with the keys of another one."""
    keys = shards.position_set(source)
    if not _may_attend(pattern, shards.position_set(rank), keys):
        nothing = torch.arange(0, device="cpu")
        empty = Layout((), shards.positions(rank), starts_all=False)
        return RingStep(empty, nothing, nothing)
    by_position = _layout_of_runs(pattern, shards, rank, source, block)
    positions = _key_positions(by_position, shards.length)
    listed = _renumbered(by_position, positions, shards.length, first=rank == source)
    return RingStep(listed, positions, keys.has(positions).nonzero().flatten())


def rank_work(pattern: Pattern, shards: ShardPositions, block: int) -> tuple[RankWork, ...]:
    """Return the work of each rank in one forward pass, per head; no rank is asked.

    Args:
        pattern: which keys each query may attend to.
        shards: the positions of all ranks.
        block: queries per block.
    """

    def make() -> tuple[RankWork, ...]:
        ranks = range(len(shards.runs))
        pairs = [0 for _ in ranks]
        sent = [[0 for _ in ranks] for _ in ranks]
        for rank in ranks:
            for source in ranks:
                step = ring_step(pattern, shards, rank, source, block)
                pairs[rank] += step.layout.num_pairs
                if rank != source:
                    sent[source][rank] = len(step.owned)
        return tuple(RankWork(pairs[rank], tuple(sent[rank])) for rank in ranks)

    return cached(pattern, ("ring work", shards, block), make)


def _layout_of_runs(
    pattern: Pattern, shards: ShardPositions, rank: int, source: int, block: int
) -> Layout:
    """Lay out the queries of a rank on the keys of another, each run of neighbours for itself.

    A block with queries of two runs would need the keys of all that lies between them. Keys that
    all queries of a run may attend to are one rectangle, which is read in place.
    """
    queries, length = shards.positions(rank), shards.length
    keys = shards.position_set(source)
    if max(len(shards.runs[rank]), len(keys.spans)) > _MOST_RUNS:
        return layout(_with_keys(pattern, keys, length), queries, length, block=block)

    strips: list[Strip] = []
    batch_size, num_before = 1, 0
    for (start, stop), full_keys, other_keys in _split_by_cover(pattern, shards.runs[rank], keys):
        # 1. Blocks of keys that some queries of the run may attend to.
        run = torch.arange(start, stop, device="cpu")
        blocks = layout(_with_keys(pattern, other_keys, length), run, length, block=block)
        strips += [
            replace(strip, queries=_shifted(strip.queries, num_before))
            for strip in blocks.unwritten
        ]

        # 2. A rectangle for each run of keys that all of them may attend to.
        rows = _contiguous(num_before, stop - start)
        for first, end in full_keys.spans:
            columns = _contiguous(first, end - first)
            strips.append(Strip(None, rows, columns, None, None, fresh=False))

        batch_size = max(batch_size, blocks.batch_size)
        num_before += stop - start
    return Layout(tuple(strips), queries, False, batch_size)


def _with_keys(pattern: Pattern, keys: PositionSet, length: int) -> Pattern:
    """Return the pairs of a pattern with some keys; `Pairs` is gathered, its negation is not."""
    return pattern & ~~Pairs(PositionSet(((0, length),)), keys)


def _split_by_cover(
    pattern: Pattern, queries: PositionRuns, keys: PositionSet
) -> list[tuple[tuple[int, int], PositionSet, PositionSet]]:
    """Return runs of queries, the keys that all queries of a run may attend to, and the others."""
    longest = max(_RUN_LENGTH, *(-(-(stop - start) // _MOST_RUNS) for start, stop in queries))
    query_runs, key_runs = _cut(queries, longest), _cut(keys.spans, longest)
    is_full = (_covers(pattern, query_runs, key_runs) == Cover.ALL).all(dim=0)

    parts: list[tuple[tuple[int, int], PositionSet, PositionSet]] = []
    for (start, stop), is_full_row in zip(query_runs, is_full.tolist(), strict=True):
        full_keys = position_set(compress(key_runs, is_full_row))
        other_keys = position_set(compress(key_runs, map(not_, is_full_row)))
        # Neighbouring runs with the same keys are one.
        if parts and parts[-1][0][1] == start and parts[-1][1] == full_keys:
            start = parts.pop()[0][0]
        parts.append(((start, stop), full_keys, other_keys))
    return parts


def _cut(runs: PositionRuns, longest: int) -> PositionRuns:
    """Cut runs so that none is longer than `longest`."""
    return tuple(
        (first, min(first + longest, stop))
        for start, stop in runs
        for first in range(start, stop, longest)
    )


def _may_attend(pattern: Pattern, queries: PositionSet, keys: PositionSet) -> bool:
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


def _contiguous(first: int, count: int) -> StripRows:
    """Return the rows of a single rectangle."""
    return StripRows(count, torch.tensor([first], device="cpu"), pitch=0)


def _shifted(rows: StripRows, by: int) -> StripRows:
    table = None if rows.table is None else rows.table + by
    return replace(rows, start=rows.start + by, table=table)


def _key_positions(by_position: Layout, num_keys: int) -> Int[Tensor, "keys"]:
    """Return the positions of the keys of all strips, ascending."""
    # +1 where a run of keys begins and −1 behind its end: a key is where their sum is not 0.
    borders = torch.zeros(num_keys + 1, dtype=torch.long, device="cpu")
    for strip in by_position.unwritten:
        rows = strip.keys
        if rows.table is None and rows.step == 1:
            first, stop = rows.start, rows.start + rows.count
        else:
            first = rows.index().flatten().unique()
            stop = first + 1
        ones = torch.ones_like(first)
        borders.index_add_(0, first, ones).index_add_(0, stop, -ones)
    return borders[:-1].cumsum(0).nonzero().flatten()


def _renumbered(
    by_position: Layout, positions: Int[Tensor, "keys"], num_keys: int, *, first: bool
) -> Layout:
    """Return a layout that counts keys in a list of positions.

    Args:
        by_position: the layout.
        positions: the positions of its keys, ascending.
        num_keys: number of keys of all ranks.
        first: whether it comes first; otherwise no strip is fresh.
    """
    index = torch.full((num_keys,), -1, dtype=torch.long, device="cpu")
    index[positions] = torch.arange(len(positions), device="cpu")
    strips = [
        replace(strip, keys=_renumbered_rows(strip.keys, index), fresh=strip.fresh and first)
        for strip in by_position.unwritten
    ]
    return replace(by_position, unwritten=tuple(strips), key_positions=positions)


def _renumbered_rows(rows: StripRows, index: Int[Tensor, "all_keys"]) -> StripRows:
    """Return the indices of rows; regular if they still are, so that they are read in place."""
    if rows.table is None:
        first, last = index[rows.start], index[rows.start + rows.step * (rows.count - 1)]
        # Indices ascend with rows, so ends that are as far apart as before have no gap between.
        for step in (rows.step, 1):
            if bool((last - first == step * (rows.count - 1)).all()):
                return StripRows.stepped(first, step, rows.count)
    return StripRows.listed(index[rows.index()])
