"""A matrix in tiles, without masked ones."""

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from regard.matrix.groups import GROUP, ROW_GROUP, grouped
from regard.matrix.index import Index, as_tensor, take
from regard.matrix.source import Buffers, Fact, KeyColumns, QueryRows, WeightBlock
from regard.matrix.view import View
from regard.patterns import Pattern
from regard.patterns.block_search import KEY_BLOCK, descend
from regard.patterns.layout_cache import cached
from regard.patterns.pattern import Cover

BUDGET = 256 * 2**20
"""Default memory of a pass over a matrix, in bytes."""

_BUFFERS = 4
"""Numbers per pair of a chunk: score, product, and up to two masks."""

Span = tuple[int, int, bool]
"""Start and stop of a run of columns, and whether some of its pairs may be masked."""

_ROWS = 256
"""Rows of a tile: enough for a matrix product at full speed."""

_CPU_CHUNK, _GPU_CHUNK = 2**20, 2**24
"""Pairs of a chunk of columns: on the CPU per thread, so that chunks fit into its caches.

With a quarter of that, the overhead of calls exceeds the gain from the L2 cache.
"""

_REMEMBERED = 2**16
"""Layouts of longer matrices are not cached: that takes memory and saves little."""

_OVERHEAD = 100_000
"""Overhead of a chunk of columns, in pairs."""


@dataclass(eq=False)
class Tile:
    """Some rows of some heads of a view, with all their allowed columns.

    Attributes:
        view: the view.
        batch: the sequences, in the view.
        heads: the heads, in the view.
        queries: the rows, in the view.
        columns: the columns, in the view, ascending.
        rows: the rows, in the source.
        keys: the columns, in the source.
        partial: runs of columns in which some pairs may be masked.
        block: the numbers.
    """

    view: View
    batch: slice
    heads: slice
    queries: slice
    columns: Index
    rows: QueryRows
    keys: Index
    partial: Sequence[slice]
    block: WeightBlock

    @property
    def shape(self) -> torch.Size:
        """Sequences, heads, rows and columns."""
        return self.block.numbers.shape

    @property
    def device(self) -> torch.device:
        """The device."""
        return self.block.numbers.device

    @property
    def query_positions(self) -> Int[Tensor, "rows"]:
        """The positions of the rows, on the device."""
        return self.rows.positions

    @cached_property
    def key_positions(self) -> Int[Tensor, "columns"]:
        """The positions of the columns, on the device."""
        return as_tensor(self.keys).to(self.device)

    @cached_property
    def place(self) -> Hashable:
        """Which sequences, rows and columns these are; the layers of a model have the same ones."""
        columns = self.keys if isinstance(self.keys, range) else tuple(self.keys.tolist())
        view = tuple((one.start, one.stop) for one in (self.batch, self.queries))
        rows = tuple(self.query_positions.tolist())
        return view, self.rows.batch, rows, columns, self.device

    @property
    def weights(self) -> Float[Tensor, "batch heads rows columns"]:
        """The weights. They last until the next tile."""
        return self.block.weights

    @property
    def magnitudes(self) -> Float[Tensor, "batch heads rows columns"]:
        """How large the weights are: their absolute values, if they are signed."""
        return self.weights.abs() if self.view.source.signed else self.weights

    def heads_of(self, tensor: Tensor) -> Tensor:
        """Return the part of a tensor [batch, heads, ...] that belongs to the tile."""
        return tensor[self.batch, self.heads]

    def rows_of(self, tensor: Tensor) -> Tensor:
        """Return the part of a tensor [batch, heads, queries, ...] that belongs to the tile."""
        return tensor[self.batch, self.heads, self.queries]

    def add_to_columns(self, tensor: Tensor, values: Tensor) -> None:
        """Add values to the part of a tensor [batch, heads, ..., keys] that belongs to the tile."""
        mine = self.heads_of(tensor)
        if isinstance(self.columns, range):
            take(mine, tensor.dim() - 1, self.columns).add_(values)
        else:
            index = self.columns.to(tensor.device)
            mine.index_add_(tensor.dim() - 1, index, values.to(tensor.dtype))

    def test(self, pattern: Pattern) -> Bool[Tensor, "batch 1 rows columns"]:
        """Say which pairs a pattern allows."""
        return self.rows.test(pattern, self.keys)

    def allowed(self, columns: slice) -> Bool[Tensor, "batch heads_or_1 rows some_columns"]:
        """Say which pairs may look: what neither the pattern nor the bias masks."""
        self._require_mask()
        return self.view.source.allowed(self.rows, self.keys[columns])

    @property
    def num_allowed_queries(self) -> Int[Tensor, "batch heads columns"]:
        """How many rows may look at each column."""
        self._require_mask()
        batch, heads, rows, columns = self.shape
        found = torch.full((batch, heads, columns), rows, device=self.device)
        every = [slice(0, columns)] if self.view.source.biased else self.partial
        for span in every:
            found[..., span] = self.allowed(span).sum(dim=2)
        return found

    def _require_mask(self) -> None:
        """Raise ValueError if it is unknown which pairs are masked."""
        if not self.view.source.mask_known:
            raise ValueError(
                "which pairs are masked is unknown: the model changes its scores by functions that "
                "are not followed, or adds numbers that may be masks or biases. State the mask: "
                "AttentionMatrix.from_weights(A.dense(), pattern=causal())"
            )

    @property
    def row_sums(self) -> Float[Tensor, "batch heads rows"]:
        """The sum of each row: 1, unless sinks or columns that aren't in the view take a share."""
        if self.block.row_sums is None:
            self.block.row_sums = self.weights.sum(dim=3)
        return self.block.row_sums

    @property
    def column_sums(self) -> Float[Tensor, "batch heads columns"]:
        """The sum of each column over the rows of the tile."""
        return self.sums.sum(dim=2)

    @property
    def sums(self) -> Float[Tensor, "batch heads row_groups columns"]:
        """The sum of each column over each 16 rows; the last group may be smaller."""
        if self.block.sums is None:
            self.block.sums = grouped(self.weights, 2, "sum", ROW_GROUP)
        return self.block.sums

    @property
    def entropy(self) -> Float[Tensor, "batch heads rows"]:
        """−Σ w · log w of each row."""
        if self.block.entropy is None:
            each: Tensor = torch.special.entr(self.weights)
            self.block.entropy = each.sum(dim=3)
        return self.block.entropy

    @property
    def group_max(self) -> Float[Tensor, "batch heads rows column_groups"]:
        """The largest of each 64 neighbouring magnitudes; the last group may be smaller."""
        if self.block.group_max is None:
            self.block.group_max = grouped(self.magnitudes, 3, "max")
        return self.block.group_max

    def weights_at(
        self, columns: Int[Tensor, "*leading rows_or_1 some_columns"]
    ) -> Float[Tensor, "batch heads rows some_columns"]:
        """Return the weights at a few columns of each row."""
        numbers = self.block.numbers.gather(3, columns.expand(*self.shape[:3], -1))
        return self.block.scaled(numbers)

    def weights_of_groups(
        self, groups: Int[Tensor, "batch heads rows some_groups"]
    ) -> Float[Tensor, "batch heads rows some_groups*64"]:
        """Return the weights of groups of 64 columns, a few for each row; 0 beyond the last."""
        numbers, missing = self.block.numbers, -self.shape[3] % GROUP
        if missing:
            numbers = pad(numbers, (0, missing))
        # Groups as rows of a table: that copies 64 numbers at a time.
        num_rows, each = groups[..., 0].numel(), numbers.shape[3] // GROUP
        first = torch.arange(0, num_rows * each, each, device=groups.device)
        places = (groups.flatten(0, 2) + first[:, None]).flatten()
        found = numbers.reshape(-1, GROUP).index_select(0, places)
        return self.block.scaled(found.view(*groups.shape[:3], -1))


def tiles_of_rows(
    view: View, rows: slice, facts: Collection[Fact] = (), budget: int = BUDGET
) -> Iterator[Tile]:
    """Yield the tiles of some rows of a view, as tiles of that view; arguments as for `tiles`."""
    for tile in tiles(replace(view, queries=view.queries[rows]), facts, budget):
        queries = slice(tile.queries.start + rows.start, tile.queries.stop + rows.start)
        yield replace(tile, view=view, queries=queries)


def tiles(view: View, facts: Collection[Fact] = (), budget: int = BUDGET) -> Iterator[Tile]:
    """Yield the tiles of a view.

    Every row is in one: rows without allowed keys have one column of 0. A tile's numbers are
    overwritten by the next one.

    Args:
        view: the view.
        facts: the facts that will be read from each tile, cheaper to compute with it.
        budget: maximum memory in bytes, if that suffices for a row.
    """
    source = view.source
    if not view.has_all_keys:
        compute_lse(view, budget)
    buffers = Buffers(source.dtype, source.device)
    for task in _tasks(view, budget):
        rows, columns = task.rows(view), task.columns(view)
        places, partial = task.all_columns
        if columns:
            block = source.block(rows, columns, facts, buffers, whole=view.has_all_keys)
        else:
            if view.has_all_keys and not source.has_lse(rows.batch, rows.heads, rows.queries):
                source.compute_lse(rows, [], buffers)
            places, partial = range(1), [slice(0, 1)]
            sizes = (len(rows.batch), len(rows.heads), len(rows.queries), 1)
            block = WeightBlock(torch.zeros(*sizes, dtype=source.dtype, device=source.device))
        keys = _part(view.keys, places)
        yield Tile(view, *task[:3], places, rows, keys, partial, block)


def compute_lse(view: View, budget: int = BUDGET) -> None:
    """Compute the log-sum-exp of all rows of a view, so that any part can be computed alone."""
    if view.source.has_lse(view.batch, view.heads, view.queries):
        return
    whole = replace(view, keys=range(view.source.shape[3]))
    buffers = Buffers(view.source.dtype, view.source.device)
    for task in _tasks(whole, budget):
        rows = task.rows(whole)
        if not view.source.has_lse(rows.batch, rows.heads, rows.queries):
            view.source.compute_lse(rows, task.columns(whole), buffers)


class _Task(NamedTuple):
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
        places = (view.batch[self.batch], view.heads[self.heads], view.queries[self.queries])
        return view.source.rows(*places)

    def columns(self, view: View) -> list[KeyColumns]:
        """Return the columns, in the source."""
        return [KeyColumns(_part(view.keys, keys), partial) for keys, partial in self.chunks]


def _part(index: Index, places: Index) -> Index:
    if isinstance(places, range):
        return index[places.start : places.stop]
    return as_tensor(index)[places]


def _tasks(view: View, budget: int) -> Iterator[_Task]:
    """Split a view into tasks that fit into a budget, and their columns into chunks."""
    if 0 in view.sizes:
        return
    source = view.source
    size = _CPU_CHUNK * torch.get_num_threads() if source.device.type == "cpu" else _GPU_CHUNK
    most = max(1, budget // source.dtype.itemsize // 2)
    size = max(1, min(size, most // _BUFFERS))
    rows, strips = _known_strips(view, size, most)
    for strip in strips:
        queries = slice(strip.number * rows, min((strip.number + 1) * rows, len(view.queries)))
        height, width = queries.stop - queries.start, strip.width
        together = max(1, min(size // (height * max(1, width)), len(view.heads) * len(view.batch)))
        num_heads, num_sequences = len(view.heads), max(1, together // len(view.heads))
        columns = _joined(strip.spans)
        chunks = list(_chunks(strip.spans, _width(height * together, size)))
        for first in range(strip.batch.start, strip.batch.stop, num_sequences):
            batch = slice(first, min(first + num_sequences, strip.batch.stop))
            done = 0
            for run in source.head_runs(view.heads, min(together, num_heads)):
                heads = slice(done, done + len(run))
                done = heads.stop
                yield _Task(batch, heads, queries, columns, chunks)


def _width(rows: int, size: int) -> int:
    """Return the number of columns of a chunk: whole groups."""
    return max(1, size // rows // GROUP) * GROUP


class _Strip(NamedTuple):
    """Some rows of some sequences of a view, and their runs of columns."""

    batch: slice
    number: int
    spans: list[Span]

    @property
    def width(self) -> int:
        """Number of columns."""
        return sum(stop - start for start, stop, _ in self.spans)


def _known_strips(view: View, size: int, most: int) -> tuple[int, list[_Strip]]:
    """Return `_strips`, cached for the layers of a model."""
    if len(view.queries) > _REMEMBERED or not isinstance(view.keys, range):
        return _strips(view, size, most)
    positions = view.source.positions(view.queries)
    if not bool((positions.diff() == 1).all()):
        return _strips(view, size, most)
    first = int(positions[0])
    heads = len(view.heads)
    name = ("strips", first, len(positions), view.keys, view.batch, heads, size, most)
    return cached(view.source.pattern, name, lambda: _strips(view, size, most))


def _strips(view: View, size: int, most: int) -> tuple[int, list[_Strip]]:
    """Return the number of rows of a strip, and the strips.

    Fewer rows need fewer partially masked columns, but more calls.

    Args:
        view: the view.
        size: numbers per chunk.
        most: maximum numbers in memory.
    """
    num_queries, num_keys = len(view.queries), len(view.keys)
    alike = len(view.heads) * (1 if view.source.pattern.batch_size else len(view.batch))
    rows = max(1, min(num_queries, max(_ROWS, size // num_keys)))
    strips = _strips_of(view, rows)
    while rows > 1 and rows * max(strip.width for strip in strips) > most:
        rows = max(1, rows // 2)
        strips = _strips_of(view, rows)
    while rows > GROUP and rows * num_keys * alike > size:
        fewer = _strips_of(view, rows // 2)
        if _cost(fewer, rows // 2, size, alike) > 0.9 * _cost(strips, rows, size, alike):
            break
        rows, strips = rows // 2, fewer
    return rows, strips


def _cost(strips: list[_Strip], rows: int, size: int, alike: int) -> int:
    """Return the cost of `alike` matrices of the same strips, in pairs."""
    pairs = chunks = 0
    for strip in strips:
        pairs += alike * rows * strip.width
        if rows * strip.width <= size:
            chunks += -(-alike // (size // max(1, rows * strip.width)))
        else:
            chunks += alike * -(-strip.width // _width(rows, size))
    return pairs + _OVERHEAD * chunks


def _strips_of(view: View, rows: int) -> list[_Strip]:
    """Return strips of `rows` rows, without columns of cover NONE."""
    pattern = view.source.pattern
    queries = view.source.positions(view.queries)[None]
    keys = as_tensor(view.keys)[None]
    runs = descend(pattern, queries, keys, rows)
    # Join adjacent runs of the same kind.
    parts = runs.batch[1:] != runs.batch[:-1]
    parts |= runs.query_block[1:] != runs.query_block[:-1]
    parts |= runs.key_block[1:] != (runs.key_block + runs.length)[:-1]
    parts |= runs.code[1:] != runs.code[:-1]
    edge = torch.ones(min(1, len(runs.batch)), dtype=torch.bool, device="cpu")
    begins, ends = torch.cat([edge, parts]), torch.cat([parts, edge])
    stop = ((runs.key_block + runs.length)[ends] * KEY_BLOCK).clamp_max(keys.shape[1])
    found = (
        runs.batch[begins],
        runs.query_block[begins],
        runs.key_block[begins] * KEY_BLOCK,
        stop,
        runs.code[begins] == Cover.SOME,
    )
    sequences = {0: slice(0, len(view.batch))}
    if pattern.batch_size is not None:
        sequences = {b: slice(number, number + 1) for number, b in enumerate(view.batch)}
    num_strips = -(-queries.shape[1] // rows)
    strips = {
        (b, number): _Strip(some, number, [])
        for b, some in sequences.items()
        for number in range(num_strips)
    }
    for b, number, *span in zip(*(x.tolist() for x in found), strict=True):
        if b in sequences:
            strips[b, number].spans.append((span[0], span[1], span[2]))
    return list(strips.values())


def _chunks(spans: list[Span], width: int) -> Iterator[KeyColumns]:
    """Split the columns of a strip into chunks of at most `width`."""
    chunk: list[Span] = []
    room = width
    for start, stop, partial in spans:
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


def _joined(spans: list[Span]) -> KeyColumns:
    """Return the columns of some spans, and their partial runs."""
    partial: list[slice] = []
    width = 0
    for start, stop, some in spans:
        if some:
            partial.append(slice(width, width + stop - start))
        width += stop - start
    if not spans or spans[-1][1] - spans[0][0] == width:
        first = spans[0][0] if spans else 0
        return KeyColumns(range(first, first + width), partial)
    return KeyColumns(
        torch.cat([torch.arange(start, stop, device="cpu") for start, stop, _ in spans]), partial
    )
