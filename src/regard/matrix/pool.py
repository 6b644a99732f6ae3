"""The matrix, pooled to a small one."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from regard.matrix.arithmetic import ROW_GROUP, How, grouped, larger
from regard.matrix.reduction import Result, Sums, merged, rows_of_zeros, zeros
from regard.matrix.source import Fact, Index
from regard.matrix.tiles import Tile
from regard.matrix.view import View


@dataclass(frozen=True, eq=False, repr=False)
class PoolResult(Result):
    """Pooled cells of each head, labelled by their first query and key.

    Attributes:
        cells: the mean or the largest weight of each cell; for effects, the largest by absolute
            value, with its sign.
        height: queries per cell; the last row of cells may have fewer.
        width: keys per cell; the last column of cells may have fewer.
    """

    cells: Float[Tensor, "*heads cell_rows cell_columns"]
    height: int
    width: int


@dataclass(frozen=True)
class Pool:
    """At most size × size cells, each the mean or the largest of its weights.

    All cells have the same size, except the last row and column; a mean is over all pairs of a
    cell, masked ones included.

    Args:
        size: maximum number of cells along each axis.
        how: "mean" or "max".

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 5, 8)
    >>> regard.AttentionMatrix(x, x, pattern=regard.causal())[0, 0].pool(3).cells
    tensor([[0.5000, 0.0000, 0.0000],
            [0.2917, 0.2083, 0.0000],
            [0.2000, 0.2000, 0.2000]])
    """

    size: int
    how: Literal["mean", "max"] = "mean"

    facts: ClassVar[tuple[Fact, ...]] = ()

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"Pool: size must be at least 1, got {self.size}")
        if self.how not in ("mean", "max"):
            raise ValueError(f"Pool: how must be 'mean' or 'max', got {self.how!r}")

    def start(self, view: View) -> Sums:
        counts = (-(-size // self._cell(size)) for size in view.sizes[2:])
        state = rows_of_zeros(view)
        state.tensors["cells"] = zeros(view, *counts)
        return state

    def _cell(self, size: int) -> int:
        """Return how many rows or columns a cell has."""
        return max(1, -(-size // self.size))

    def update(self, state: Sums, tile: Tile) -> Sums:
        tile.rows_of(state["seen"]).add_(1)
        height, width = (self._cell(size) for size in tile.view.sizes[2:])
        start, cells = tile.queries.start, tile.heads_of(state["cells"])
        if self.how == "mean" and height % ROW_GROUP == 0 and start % ROW_GROUP == 0:
            rows = grouped(tile.sums, 2, "sum", height // ROW_GROUP, start % height // ROW_GROUP)
            _add_rows(cells, rows, start // height, tile.columns, width, "sum")
        else:
            how = "sum" if self.how == "mean" else _largest(tile.view.source.signed)
            add_to_cells(cells, tile.weights, start, tile.columns, height, width, how)
        return state

    def merge(self, first: Sums, second: Sums) -> Sums:
        total = merged(first, second)
        if self.how == "max":
            second_cells = second["cells"].to(first["cells"].device)
            how = _largest(first.outline.signed)
            total.tensors["cells"] = larger(first["cells"], second_cells, how)
        return total

    def finish(self, state: Sums) -> PoolResult:
        outline, cells = state.outline, state["cells"]
        height, width = (self._cell(size) for size in outline.sizes[2:])
        sizes = outline.sizes[2:]
        if self.how == "mean":
            for axis, (cell, size) in enumerate(zip((height, width), sizes, strict=True), start=2):
                ends = torch.arange(0, size + cell, cell, device=cells.device).clamp_max(size)
                counts = ends.diff()[: cells.shape[axis]]
                cells = cells / (counts[:, None] if axis == 2 else counts)
        labels = outline.labels(
            cell_rows=outline.places["queries"][::height],
            cell_columns=outline.places["keys"][::width],
        )
        return PoolResult(labels, outline.trim(cells), height, width)


def add_to_cells(
    cells: Float[Tensor, "batch heads cell_rows cell_columns"],
    weights: Float[Tensor, "batch heads rows columns"],
    start: int,
    columns: Index,
    height: int,
    width: int,
    how: How,
) -> None:
    """Add weights to their cells, or take the maximum.

    Args:
        cells: the cells of a view.
        weights: some rows and columns.
        start: the first row, in the view.
        columns: the columns, in the view, ascending.
        height: rows per cell.
        width: columns per cell.
        how: sum, maximum, or maximum by absolute value.
    """
    rows = grouped(weights, 2, how, height, start % height)
    _add_rows(cells, rows, start // height, columns, width, how)


def _add_rows(
    cells: Tensor,
    rows: Float[Tensor, "batch heads some_cell_rows columns"],
    first: int,
    columns: Index,
    width: int,
    how: How,
) -> None:
    cells = cells[:, :, first : first + rows.shape[2]]
    if isinstance(columns, range):
        start = columns.start
        new = grouped(rows, 3, how, width, start % width)
        cells = cells[..., start // width : start // width + new.shape[3]]
        cells.copy_(cells + new if how == "sum" else larger(cells, new, how))
        return

    places, rows = columns.to(cells.device) // width, rows.to(cells.dtype)
    if how == "sum":
        cells.index_add_(3, places, rows)
        return
    high = cells.scatter_reduce(3, places.expand(rows.shape), rows, "amax")
    if how == "signed max":
        low = cells.scatter_reduce(3, places.expand(rows.shape), rows, "amin")
        high = larger(low, high, how)
    cells.copy_(high)


def _largest(signed: bool) -> Literal["max", "signed max"]:
    return "signed max" if signed else "max"
