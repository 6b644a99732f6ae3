"""Choose the rectangles in which a sparse matrix is computed.

A strip is `height` rows with all columns that one of them may attend to. Tall strips compute
masked pairs, low strips make many calls. Causal (█ allowed, ░ computed and masked):

    height 4: 1 strip, 16 pairs    height 2: 2 strips, 12 pairs
        █ ░ ░ ░                        █ ░
        █ █ ░ ░                        █ █
        █ █ █ ░                        █ █ █ ░
        █ █ █ █                        █ █ █ █

The time of M matrices (heads × sequences) that share their strips, counted in pairs, is about

    T = M · Σ height · width + CALL_COST · calls,

where a call computes up to `chunk_pairs`: several small matrices, or part of a large one. Halving
the height at best halves the masked pairs, and doubles the calls. So it is halved while T falls.
Planning a height costs its runs of columns, not queries × keys. Any plan is exact: a column that is
left out has weight 0 in all rows of the strip, and masked pairs are set to 0.

A tile is a strip of as many matrices as fit into a chunk, and its columns in chunks:

    tile     ████████████████████████     whole rows, so that they can be summarised at once
    chunks   ████████│████████│██████     each is computed while it is in the CPU's cache
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from regard.matrix.arithmetic import GROUP, head_runs
from regard.matrix.source import Columns, Index, KeyColumns, QueryRows, as_tensor
from regard.matrix.view import View
from regard.patterns.block_search import KEY_BLOCK, descend
from regard.patterns.layout_cache import cached
from regard.patterns.pattern import Cover

CPU_CHUNK, GPU_CHUNK = 2**20, 2**24
"""Pairs of a chunk of columns: on the CPU per thread, so that chunks fit into its caches.

With a quarter of that, the overhead of calls exceeds the gain from the L2 cache.
"""

CALL_COST = 100_000
"""Fixed time of a call, as pairs computed meanwhile (where measured: not recorded)."""

WORTH_HALVING = 0.9
"""Halve for a gain of a tenth: planning twice as many strips is not in the estimate."""

GEMM_ROWS = 256
"""Rows of a strip, at least before halving: enough for a matrix product at full speed."""

MIN_ROWS = GROUP
"""Strips of so many rows are not halved but for lack of memory."""

_BUFFERS = 4
"""Numbers per pair of a chunk: score, product, and up to two masks."""

_REMEMBERED = 2**16
"""Strips of matrices with more rows are not cached: that takes memory and saves little."""

ColumnRun = tuple[int, int, bool]
"""Start and stop of a run of columns, and whether some of its pairs may be masked."""


class TilePlan(NamedTuple):
    """Some rows of some heads of a view, and all their allowed columns.

    Chunks are the same columns in parts that fit into the CPU's cache.
    """

    batch: slice
    heads: slice
    queries: slice
    all_columns: KeyColumns
    chunks: list[KeyColumns]

    def rows(self, view: View) -> QueryRows:
        """Return the rows, in the source."""
        queries, source = view.queries[self.queries], view.source
        positions = source.positions(queries).to(source.device)
        return QueryRows(view.batch[self.batch], view.heads[self.heads], queries, positions)

    def columns(self, view: View) -> Columns:
        """Return the columns, in the source."""
        return [KeyColumns(part_of(view.keys, keys), partial) for keys, partial in self.chunks]


class RowStrip(NamedTuple):
    """Rows of some sequences of a view, and their runs of columns."""

    batch: slice
    number: int
    runs: list[ColumnRun]

    @property
    def width(self) -> int:
        """Number of columns."""
        return sum(stop - start for start, stop, _ in self.runs)


def part_of(index: Index, places: Index) -> Index:
    """Return the listed elements of an index."""
    if isinstance(places, range):
        return index[places.start : places.stop]
    return as_tensor(index)[places]


def plan_tiles(view: View, budget: int) -> Iterator[TilePlan]:
    """Split a view into tiles that fit into a budget, and their columns into chunks."""
    if 0 in view.sizes:
        return
    source, num_heads = view.source, len(view.heads)

    # 1. Half of the memory is for the weights of a tile, half for the buffers of a chunk.
    on_cpu = source.device.type == "cpu"
    chunk_pairs = CPU_CHUNK * torch.get_num_threads() if on_cpu else GPU_CHUNK
    memory_pairs = max(1, budget // source.dtype.itemsize // 2)
    chunk_pairs = max(1, min(chunk_pairs, memory_pairs // _BUFFERS))

    # 2. The strips that all heads have.
    height, strips = _known_strips(view, chunk_pairs, memory_pairs)

    # 3. Tiles: as many heads and sequences of a strip together as a chunk has room for.
    for strip in strips:
        queries = slice(strip.number * height, min((strip.number + 1) * height, len(view.queries)))
        num_rows = queries.stop - queries.start
        num_matrices = chunk_pairs // (num_rows * max(1, strip.width))
        num_matrices = max(1, min(num_matrices, num_heads * len(view.batch)))
        num_sequences = max(1, num_matrices // num_heads)
        columns = _joined(strip.runs)
        chunks = list(_chunks(strip.runs, _chunk_width(num_rows * num_matrices, chunk_pairs)))
        for first in range(strip.batch.start, strip.batch.stop, num_sequences):
            batch = slice(first, min(first + num_sequences, strip.batch.stop))
            num_planned = 0
            for run in head_runs(view.heads, source.group, min(num_matrices, num_heads)):
                heads = slice(num_planned, num_planned + len(run))
                num_planned = heads.stop
                yield TilePlan(batch, heads, queries, columns, chunks)


def _known_strips(view: View, chunk_pairs: int, memory_pairs: int) -> tuple[int, list[RowStrip]]:
    """Return `plan_strips`, cached for the layers of a model."""
    if len(view.queries) > _REMEMBERED or not isinstance(view.keys, range):
        return plan_strips(view, chunk_pairs, memory_pairs)
    positions = view.source.positions(view.queries)
    if not bool((positions.diff() == 1).all()):
        return plan_strips(view, chunk_pairs, memory_pairs)
    span = (int(positions[0]), len(positions))
    name = ("strips", *span, view.keys, view.batch, len(view.heads), chunk_pairs, memory_pairs)
    return cached(view.source.pattern, name, lambda: plan_strips(view, chunk_pairs, memory_pairs))


def plan_strips(view: View, chunk_pairs: int, memory_pairs: int) -> tuple[int, list[RowStrip]]:
    """Return the height of the strips, and the strips.

    Args:
        view: the view.
        chunk_pairs: number of pairs that are computed by a call.
        memory_pairs: maximum number of pairs in memory.
    """
    num_queries, num_keys = len(view.queries), len(view.keys)
    num_matrices = len(view.heads) * (1 if view.source.pattern.batch_size else len(view.batch))
    height = max(1, min(num_queries, max(GEMM_ROWS, chunk_pairs // num_keys)))
    strips = _strips_of(view, height)

    # A strip must fit into memory, whatever it costs.
    while height > 1 and height * max(strip.width for strip in strips) > memory_pairs:
        height //= 2
        strips = _strips_of(view, height)

    # What a single call can compute is left whole; all else is halved while that pays.
    while height > MIN_ROWS and height * num_keys * num_matrices > chunk_pairs:
        lower = _strips_of(view, height // 2)
        time = estimated_time(strips, height, num_matrices, chunk_pairs)
        if estimated_time(lower, height // 2, num_matrices, chunk_pairs) > WORTH_HALVING * time:
            break
        height, strips = height // 2, lower
    return height, strips


def estimated_time(strips: list[RowStrip], height: int, num_matrices: int, chunk_pairs: int) -> int:
    """Return T."""
    time = 0
    for strip in strips:
        pairs = height * strip.width
        if pairs <= chunk_pairs:
            calls = -(-num_matrices // (chunk_pairs // max(1, pairs)))
        else:
            calls = num_matrices * -(-strip.width // _chunk_width(height, chunk_pairs))
        time += num_matrices * pairs + CALL_COST * calls
    return time


def _chunk_width(num_rows: int, chunk_pairs: int) -> int:
    """Return the number of columns of a chunk: whole groups."""
    return max(1, chunk_pairs // num_rows // GROUP) * GROUP


def _strips_of(view: View, height: int) -> list[RowStrip]:
    """Return strips of `height` rows, without columns of cover NONE."""
    pattern = view.source.pattern
    queries = view.source.positions(view.queries)[None]
    keys = as_tensor(view.keys)[None]
    blocks = descend(pattern, queries, keys, height)

    # 1. Join adjacent runs of the same kind: a new one begins where any of these changes.
    breaks = blocks.batch[1:] != blocks.batch[:-1]
    breaks |= blocks.query_block[1:] != blocks.query_block[:-1]
    breaks |= blocks.key_block[1:] != (blocks.key_block + blocks.length)[:-1]
    breaks |= blocks.code[1:] != blocks.code[:-1]
    edge = torch.ones(min(1, len(blocks.batch)), dtype=torch.bool, device="cpu")
    begins, ends = torch.cat([edge, breaks]), torch.cat([breaks, edge])
    stop = ((blocks.key_block + blocks.length)[ends] * KEY_BLOCK).clamp_max(keys.shape[1])
    joined = (
        blocks.batch[begins],
        blocks.query_block[begins],
        blocks.key_block[begins] * KEY_BLOCK,
        stop,
        blocks.code[begins] == Cover.SOME,
    )

    # 2. Sort them into strips. Sequences share theirs unless the pattern tells them apart.
    sequences = {0: slice(0, len(view.batch))}
    if pattern.batch_size is not None:
        sequences = {b: slice(number, number + 1) for number, b in enumerate(view.batch)}
    num_strips = -(-queries.shape[1] // height)
    strips = {
        (b, number): RowStrip(batch, number, [])
        for b, batch in sequences.items()
        for number in range(num_strips)
    }
    for b, number, *run in zip(*(values.tolist() for values in joined), strict=True):
        if b in sequences:
            strips[b, number].runs.append((run[0], run[1], run[2]))
    return list(strips.values())


def _chunks(runs: list[ColumnRun], width: int) -> Iterator[KeyColumns]:
    """Split the columns of a strip into chunks of at most `width`."""
    chunk: list[ColumnRun] = []
    room = width
    for start, stop, partial in runs:
        while start < stop:
            end = min(stop, start + room)
            chunk.append((start, end, partial))
            room -= end - start
            start = end
            if room == 0:
                yield _joined(chunk)
                chunk, room = [], width
    if chunk:
        yield _joined(chunk)


def _joined(runs: list[ColumnRun]) -> KeyColumns:
    """Return the columns of some runs, and where some of their pairs may be masked."""
    partial: list[slice] = []
    width = 0
    for start, stop, is_partial in runs:
        if is_partial:
            partial.append(slice(width, width + stop - start))
        width += stop - start
    if not runs or runs[-1][1] - runs[0][0] == width:
        first = runs[0][0] if runs else 0
        return KeyColumns(range(first, first + width), partial)
    columns = [torch.arange(start, stop, device="cpu") for start, stop, _ in runs]
    return KeyColumns(torch.cat(columns), partial)
