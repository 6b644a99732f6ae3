"""Pooled maps of each head at several sizes, written while the matrix is computed."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
import zarr
from torch import Tensor

from regard.calls.call import AttentionCall
from regard.matrix.arithmetic import grouped
from regard.matrix.pool import add_to_cells
from regard.matrix.reduction import Result, zeros
from regard.matrix.source import Fact
from regard.matrix.tiles import Tile
from regard.matrix.view import View
from regard.patterns.pattern import Cover
from regard.recording import arrays
from regard.recording.layout import HOW, POOLS, call_specs, is_map, map_specs, pools_of_all
from regard.recording.schema import TILE, CallFacts
from regard.recording.stored import CallArrays, covers

_Cells = dict[str, Tensor]
"""By pool, cells of some rows, [..., heads, rows, columns]; sums for "mean"."""


@dataclass
class _Levels:
    """The cells that are not written yet.

    Attributes:
        outline: the view that is summarised.
        bands: the unfinished bands of the finest map, by number.
        waiting: for each coarser map, the rows of an incomplete band.
        written: number of rows of each map that are written.
    """

    outline: Any
    bands: dict[int, _Cells]
    waiting: dict[int, list[_Cells]]
    written: dict[int, int]


@dataclass(frozen=True, eq=False)
class Pyramid:
    """A reduction that writes the rows of maps as soon as they are finished.

    Rows must ascend, in one pass, as in `summarize`.

    Args:
        call_facts: the call's facts.
        call: the call, with all heads or some.
        group: the group of the maps `mean/16`, `max/16`, `mean/32`, …, which were created.
        pools: which maps to write: "mean" and "max" of weights, or "effect".
        first_head: number of the first head.
    """

    call_facts: CallFacts
    call: AttentionCall
    group: zarr.Group
    pools: tuple[str, ...] = POOLS
    first_head: int = 0
    _maps: dict[str, Any] = field(default_factory=dict[str, Any], init=False)

    facts: ClassVar[tuple[Fact, ...]] = ()

    def start(self, view: View) -> _Levels:
        facts = self.call_facts
        for name in call_specs(facts):
            if name.split("/")[0] in self.pools:
                self._maps[name] = arrays.created(self.group, name, sparse=True)
        return _Levels(
            view.outline, {}, {cell: [] for cell in facts.cells}, dict.fromkeys(facts.cells, 0)
        )

    def update(self, state: _Levels, tile: Tile) -> _Levels:
        cell = self.call_facts.cells[0]
        height = TILE * cell
        start, stop = tile.queries.start, tile.queries.stop
        for number in sorted(state.bands):
            if (number + 1) * height <= start:
                self._finish_band(state, number)
        for number in range(start // height, (stop - 1) // height + 1):
            band = state.bands.get(number)
            if band is None:
                band = state.bands[number] = self._new_band(tile.view, number)
            first, last = max(start, number * height), min(stop, (number + 1) * height)
            weights = tile.weights[:, :, first - start : last - start]
            place = (first - number * height, tile.columns, cell, cell)
            for pool, cells in band.items():
                add_to_cells(tile.heads_of(cells), weights, *place, HOW[pool])
        return state

    def merge(self, first: _Levels, second: _Levels) -> _Levels:
        raise TypeError("maps are written in one pass")

    def finish(self, state: _Levels) -> Result:
        for number in sorted(state.bands):
            self._finish_band(state, number)
        for cell in self.call_facts.cells[1:]:
            self._write_waiting(state, cell)
        return Result(state.outline.labels())

    def _new_band(self, view: View, number: int) -> _Cells:
        facts = self.call_facts
        cell = facts.cells[0]
        rows = min(TILE, -(-facts.queries // cell) - number * TILE)
        sizes = (rows, -(-facts.keys // cell))
        return {pool: zeros(view, *sizes, dtype=view.source.dtype) for pool in self.pools}

    def _finish_band(self, state: _Levels, number: int) -> None:
        band = state.bands.pop(number)
        cells = {pool: one[0].cpu() for pool, one in band.items()}
        self._write(state, self.call_facts.cells[0], cells)

    def _write(self, state: _Levels, cell: int, band: _Cells) -> None:
        """Write a band of a map, and add it to the next coarser one."""
        facts, first = self.call_facts, state.written[cell]
        stop = first + band[self.pools[0]].shape[1]
        queries = range(first * cell, min(stop * cell, facts.queries))
        forbidden = self._forbidden(queries, cell)
        heights, widths = (_counts(size, cell) for size in (len(queries), facts.keys))
        for pool, cells in band.items():
            if pool == "mean":
                cells = cells / heights[:, None] / widths
            if len(cells) == facts.heads > 1:
                cells = torch.cat([cells, cells.mean(dim=0, keepdim=True)])
            values = arrays.rounded(cells.masked_fill(forbidden, torch.nan).float().numpy())
            heads = slice(self.first_head, self.first_head + len(cells))
            self._maps[f"{pool}/{cell}"][heads, first:stop] = values
        state.written[cell] = stop
        if 2 * cell not in facts.cells:
            return
        pooled = {
            pool: grouped(grouped(cells, 1, HOW[pool], 2), 2, HOW[pool], 2)
            for pool, cells in band.items()
        }
        state.waiting[2 * cell].append(pooled)
        if sum(part[self.pools[0]].shape[1] for part in state.waiting[2 * cell]) >= TILE:
            self._write_waiting(state, 2 * cell)

    def _write_waiting(self, state: _Levels, cell: int) -> None:
        waiting, state.waiting[cell] = state.waiting[cell], []
        if waiting:
            band = {pool: torch.cat([part[pool] for part in waiting], dim=1) for pool in waiting[0]}
            self._write(state, cell, band)

    def _forbidden(self, queries: range, cell: int) -> Tensor:
        """Return the cells without allowed pairs, [rows, columns]."""
        keys = self.call_facts.keys
        rows, columns = -(-len(queries) // cell), -(-keys // cell)
        found = torch.zeros(rows, columns, dtype=torch.bool)
        wide = TILE * cell
        coarse = covers(self.call, queries, range(keys), len(queries), wide)[0]
        for number, code in enumerate(coarse.tolist()):
            part = found[:, number * TILE : (number + 1) * TILE]
            if code == Cover.NONE:
                part.fill_(True)
            elif code == Cover.SOME:
                some = range(number * wide, min((number + 1) * wide, keys))
                part.copy_(covers(self.call, queries, some, cell, cell) == Cover.NONE)
        return found


def _counts(size: int, cell: int) -> Tensor:
    """Return the number of tokens of each cell along an axis; the last may have fewer."""
    starts = torch.arange(0, size, cell)
    return (starts + cell).clamp_max(size) - starts


def write_mean_of_heads(call: CallArrays, group: zarr.Group) -> None:
    """Write maps of the mean over heads, from the maps of the heads."""
    heads = call.facts.heads
    for name in filter(is_map, call_specs(call.facts)):
        array = arrays.created(group, name, sparse=True)
        for top in range(0, array.shape[1], TILE):
            rows = slice(top, top + TILE)
            total = np.zeros((min(TILE, array.shape[1] - top), array.shape[2]))
            for head in range(heads):
                # Cells without allowed pairs are NaN in all heads.
                total += call.array(name).read(head, rows)
            array[heads, rows] = arrays.rounded((total / heads).astype(np.float32))


def mean_of_all(calls: list[CallArrays], group: zarr.Group) -> list[int]:
    """Write maps of the mean over all heads of all calls, from the maps of the calls.

    Returns:
        The cell size of each map in tokens; empty if calls differ in size.
    """
    sizes = {(call.facts.queries, call.facts.keys, tuple(call.facts.cells)) for call in calls}
    if len(sizes) != 1 or len(calls) < 2:
        return []
    total = sum(call.facts.heads for call in calls)
    cells = calls[0].facts.cells
    first = calls[0].facts
    pools = pools_of_all([call.facts for call in calls])
    for name, spec in map_specs(cells, first.queries, first.keys, pools).items():
        array = arrays.create(group, name, spec, sparse=True)
        for top in range(0, spec.shape[0], TILE):
            rows = slice(top, top + TILE)
            found = np.zeros((min(TILE, spec.shape[0] - top), spec.shape[1]))
            known = np.zeros(found.shape, dtype=bool)
            for call in calls:
                values = call.array(name).read(call.facts.rows - 1, rows)
                # NaN only if the pairs are masked in all calls.
                known |= ~np.isnan(values)
                found += np.nan_to_num(values) * (call.facts.heads / total)
            found[~known] = np.nan
            array[rows] = arrays.rounded(found.astype(np.float32))
    return cells
