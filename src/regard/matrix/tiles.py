"""A matrix in tiles: whole rows, without the columns that none of them may attend to."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from regard.matrix.arithmetic import GROUP, ROW_GROUP, grouped
from regard.matrix.source import Buffers, Fact, Facts, Index, QueryRows, as_tensor, take
from regard.matrix.tile_plan import part_of, plan_tiles
from regard.matrix.view import View
from regard.patterns import Pattern

BUDGET = 256 * 2**20
"""Default memory of a pass over a matrix, in bytes."""


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
        weights: the weights. They last until the next tile.
        statistics: those that were computed with the weights; others are computed from these when
            they are first read.
    """

    view: View
    batch: slice
    heads: slice
    queries: slice
    columns: Index
    rows: QueryRows
    keys: Index
    partial: Sequence[slice]
    weights: Float[Tensor, "batch heads rows columns"]
    statistics: dict[Fact, Tensor]

    @property
    def shape(self) -> torch.Size:
        """Sequences, heads, rows and columns."""
        return self.weights.shape

    @property
    def device(self) -> torch.device:
        """The device."""
        return self.weights.device

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
        view = tuple((part.start, part.stop) for part in (self.batch, self.queries))
        rows = tuple(self.query_positions.tolist())
        return view, self.rows.batch, rows, columns, self.device

    @property
    def magnitudes(self) -> Float[Tensor, "batch heads rows columns"]:
        """The weights; their absolute values, if they are signed."""
        return self.weights.abs() if self.view.source.signed else self.weights

    def heads_of(self, tensor: Tensor) -> Tensor:
        """Return the part of a tensor [batch, heads, ...] that belongs to the tile."""
        return tensor[self.batch, self.heads]

    def rows_of(self, tensor: Tensor) -> Tensor:
        """Return the part of a tensor [batch, heads, queries, ...] that belongs to the tile."""
        return tensor[self.batch, self.heads, self.queries]

    def add_to_columns(self, tensor: Tensor, values: Tensor) -> None:
        """Add values to the part of a tensor [batch, heads, ..., keys] that belongs to the tile."""
        part, axis = self.heads_of(tensor), tensor.dim() - 1
        if isinstance(self.columns, range):
            take(part, axis, self.columns).add_(values)
        else:
            part.index_add_(axis, self.columns.to(tensor.device), values.to(tensor.dtype))

    def test(self, pattern: Pattern) -> Bool[Tensor, "batch 1 rows columns"]:
        """Return the pairs that a pattern allows."""
        return self.rows.test(pattern, self.keys)

    def allowed(self, columns: slice) -> Bool[Tensor, "batch heads_or_1 rows some_columns"]:
        """Return the pairs of some columns that neither the pattern nor the bias masks."""
        self._require_mask()
        return self.view.source.allowed(self.rows, self.keys[columns])

    @property
    def num_allowed_queries(self) -> Int[Tensor, "batch heads columns"]:
        """How many rows may attend to each column."""
        self._require_mask()
        batch, heads, rows, columns = self.shape
        counts = torch.full((batch, heads, columns), rows, device=self.device)
        partial = [slice(0, columns)] if self.view.source.biased else self.partial
        for span in partial:
            counts[..., span] = self.allowed(span).sum(dim=2)
        return counts

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
        return self._statistic("row_sums", lambda: self.weights.sum(dim=3))

    @property
    def column_sums(self) -> Float[Tensor, "batch heads columns"]:
        """The sum of each column over the rows of the tile."""
        return self.sums.sum(dim=2)

    @property
    def sums(self) -> Float[Tensor, "batch heads row_groups columns"]:
        """The sum of each column over each 16 rows; the last group may be smaller."""
        return self._statistic("sums", lambda: grouped(self.weights, 2, "sum", ROW_GROUP))

    @property
    def entropy(self) -> Float[Tensor, "batch heads rows"]:
        """−Σ w · log w of each row."""

        def compute() -> Tensor:
            terms: Tensor = torch.special.entr(self.weights)
            return terms.sum(dim=3)

        return self._statistic("entropy", compute)

    @property
    def group_max(self) -> Float[Tensor, "batch heads rows column_groups"]:
        """The largest of each 64 neighbouring magnitudes; the last group may be smaller."""
        return self._statistic("group_max", lambda: grouped(self.magnitudes, 3, "max"))

    def _statistic(self, name: Fact, compute: Callable[[], Tensor]) -> Tensor:
        if name not in self.statistics:
            self.statistics[name] = compute()
        return self.statistics[name]

    def weights_at(
        self, columns: Int[Tensor, "*leading rows_or_1 some_columns"]
    ) -> Float[Tensor, "batch heads rows some_columns"]:
        """Return the weights at a few columns of each row."""
        return self.weights.gather(3, columns.expand(*self.shape[:3], -1))

    def weights_of_groups(
        self, groups: Int[Tensor, "batch heads rows some_groups"]
    ) -> Float[Tensor, "batch heads rows some_groups*64"]:
        """Return the weights of groups of 64 columns, a few for each row; 0 beyond the last."""
        weights, missing = self.weights, -self.shape[3] % GROUP
        if missing:
            weights = pad(weights, (0, missing))
        # Groups as rows of a table: that copies 64 numbers at a time.
        num_rows, num_groups = groups[..., 0].numel(), weights.shape[3] // GROUP
        first = torch.arange(0, num_rows * num_groups, num_groups, device=groups.device)
        places = (groups.flatten(0, 2) + first[:, None]).flatten()
        chosen = weights.reshape(-1, GROUP).index_select(0, places)
        return chosen.view(*groups.shape[:3], -1)


def tiles_of_rows(
    view: View, rows: slice, facts: Facts = (), budget: int = BUDGET
) -> Iterator[Tile]:
    """Yield the tiles of some rows of a view, as tiles of that view; arguments as for `tiles`."""
    for tile in tiles(replace(view, queries=view.queries[rows]), facts, budget):
        queries = slice(tile.queries.start + rows.start, tile.queries.stop + rows.start)
        yield replace(tile, view=view, queries=queries)


def tiles(view: View, facts: Facts = (), budget: int = BUDGET) -> Iterator[Tile]:
    """Yield the tiles of a view.

    Every row is in one: rows without allowed keys have one column of 0. A tile's numbers are
    overwritten by the next one.

    Args:
        view: the view.
        facts: the statistics that will be read from each tile, cheaper to compute with it.
        budget: maximum memory in bytes, if that suffices for a row.
    """
    source, whole = view.source, view.has_all_keys
    # Parts of rows need the log-sum-exp of whole rows.
    if not whole:
        compute_lse(view, budget)
    buffers = Buffers(source.dtype, source.device)
    for plan in plan_tiles(view, budget):
        rows = plan.rows(view)
        weights, statistics = source.block(rows, plan.columns(view), facts, buffers, whole=whole)
        places, partial = plan.all_columns
        if not plan.chunks:
            places, partial = range(1), [slice(0, 1)]
            weights, statistics = weights.new_zeros(*rows.sizes, 1), {}
        keys = part_of(view.keys, places)
        yield Tile(view, *plan[:3], places, rows, keys, partial, weights, statistics)


def compute_lse(view: View, budget: int = BUDGET) -> None:
    """Compute what parts of the rows of a view need, the log-sum-exp, from their whole rows."""
    if not view.source.has_lse(view.batch, view.heads, view.queries):
        for _ in tiles(replace(view, keys=range(view.source.shape[3])), (), budget):
            pass
