"""Tiles of the map of a call: stored ones are read, finer ones are computed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from regard.matrix.arithmetic import grouped
from regard.matrix.pool import add_to_cells
from regard.matrix.tiles import tiles
from regard.matrix.view import View
from regard.patterns.pattern import Cover
from regard.recording import arrays
from regard.recording.arrays import StoredArray
from regard.recording.errors import RecordingError
from regard.recording.layout import EFFECT, HOW
from regard.recording.schema import TILE
from regard.recording.stored import CallArrays, covers

Tile = NDArray[np.float32]
Head = int | Literal["mean"]


def tile(call: CallArrays, head: Head, level: int, x: int, y: int, pool: str) -> Tile:
    """Return a tile; see `Recording.tile`."""
    if pool == EFFECT and call.facts.effects is None:
        raise IndexError(f"{call.call} has no effects")
    check_place(call.facts.max_zoom, level, x, y)
    heads = heads_of(call, head)
    cell = 2 ** (call.facts.max_zoom - level)
    if cell in call.facts.cells and cell > 1:
        return stored(call.array(f"{pool}/{cell}"), row_of(call, head), [call], cell, x, y)
    return _computed(call, heads, cell, x, y, pool)


def stored(
    array: StoredArray, row: int | None, calls: Sequence[CallArrays], cell: int, x: int, y: int
) -> Tile:
    """Read a tile of a stored map.

    Args:
        array: the map, [heads, rows, columns] or [rows, columns].
        row: the row of the head, or None.
        calls: the calls of the map, all of one size.
        cell: tokens per cell.
        x: index of the tile along the keys.
        y: index of the tile along the queries.

    Raises:
        RecordingError: the map is damaged, or a chunk is missing.
    """
    where = (slice(y * TILE, (y + 1) * TILE), slice(x * TILE, (x + 1) * TILE))
    found = np.full((TILE, TILE), np.nan, dtype=np.float32)
    values = array.read(*(where if row is None else (row, *where)))
    if values.size and np.isnan(values).all():
        # Chunks of NaN are not written; any other missing chunk is an error.
        queries, keys = _places(calls[0], cell, x, y)
        if any(
            bool((covers(c.call, queries, keys, cell, cell) != Cover.NONE).any()) for c in calls
        ):
            raise RecordingError(
                f"{array.path} is damaged: the chunk at {y}, {x} is missing; copy it again, or "
                "record it again"
            )
    found[: values.shape[0], : values.shape[1]] = values
    return found


def _computed(call: CallArrays, heads: range, cell: int, x: int, y: int, pool: str) -> Tile:
    queries, keys = _places(call, cell, x, y)
    found = np.full((TILE, TILE), np.nan, dtype=np.float32)
    if not queries or not keys:
        return found
    how = HOW[pool]
    view = part_of(call, heads, queries, keys, pool)
    sizes = (-(-len(queries) // cell), -(-len(keys) // cell))
    cells = torch.zeros(1, len(heads), *sizes, dtype=view.source.dtype)
    with torch.no_grad():
        for part in tiles(view):
            mine = part.heads_of(cells)
            add_to_cells(mine, part.weights, part.queries.start, part.columns, cell, cell, how)
    cells = cells[0].mean(dim=0)
    if how == "sum":
        heights, widths = (
            torch.tensor([min(cell, len(side) - at) for at in range(0, len(side), cell)])
            for side in (queries, keys)
        )
        cells = cells / heights[:, None] / widths
    codes = covers(call.call, queries, keys, cell, cell)
    values = cells.float().masked_fill(codes == Cover.NONE, torch.nan)
    found[: values.shape[0], : values.shape[1]] = values.numpy()
    return found


def line(call: CallArrays, head: Head, name: str, level: int, x: int, pool: str) -> Tile:
    """Return 256 cells of a line; see `Recording.line`."""
    if name not in ("received", "entropy"):
        raise ValueError(f"name must be 'received' or 'entropy', got {name!r}")
    if pool not in ("mean", "max"):
        raise ValueError(f"pool must be 'mean' or 'max', got {pool!r}")
    check_place(call.facts.max_zoom, level, x, 0)
    heads_of(call, head)
    cell = 2 ** (call.facts.max_zoom - level)
    found = np.full(TILE, np.nan, dtype=np.float32)
    where = slice(x * TILE * cell, (x + 1) * TILE * cell)
    values = arrays.as_tensor(call.array(name).read(row_of(call, head), where))
    if not len(values):
        return found
    known = grouped((~values.isnan()).float(), 0, "sum", cell)
    if pool == "mean":
        cells = grouped(values.nan_to_num(), 0, "sum", cell) / known
    else:
        cells = grouped(values.nan_to_num(nan=-torch.inf), 0, "max", cell)
    found[: len(cells)] = cells.masked_fill(known == 0, torch.nan).numpy()
    return found


def thumbs(call: CallArrays) -> Tile:
    """Return a small map of each head; see `Recording.thumbs`."""
    return call.array("thumbs").read()


def part_of(
    call: CallArrays, heads: range, queries: range, keys: range, pool: str = "mean"
) -> View:
    """Return the view of a rectangle of some heads: their weights, or effects."""
    view = (call.call.effects if pool == EFFECT else call.call.matrix).view
    return replace(view, heads=heads, queries=queries, keys=keys)


def check_place(max_zoom: int, level: int, x: int, y: int) -> None:
    """Raise IndexError if there is no such tile."""
    if not 0 <= level <= max_zoom:
        raise IndexError(f"level must be from 0 to {max_zoom}, got {level}")
    last = 2**level - 1
    for name, place in (("x", x), ("y", y)):
        if not 0 <= place <= last:
            raise IndexError(f"{name} must be from 0 to {last} at level {level}, got {place}")


def heads_of(call: CallArrays, head: Head) -> range:
    """Return the heads to average: one, or all of a call.

    Raises:
        IndexError: there is no such head.
    """
    if head == "mean":
        return range(call.facts.heads)
    if not 0 <= head < call.facts.heads:
        raise IndexError(
            f"head must be from 0 to {call.facts.heads - 1} for {call.call}, got {head}"
        )
    return range(head, head + 1)


def row_of(call: CallArrays, head: Head) -> int:
    """Return the row of a head, or of the mean, in arrays over heads."""
    return call.facts.rows - 1 if head == "mean" else head


def _places(call: CallArrays, cell: int, x: int, y: int) -> tuple[range, range]:
    size = TILE * cell
    queries = range(min(y * size, call.facts.queries), min((y + 1) * size, call.facts.queries))
    return queries, range(min(x * size, call.facts.keys), min((x + 1) * size, call.facts.keys))
