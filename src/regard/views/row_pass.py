"""Reductions of a matrix, some rows at a time, and the mean over its heads from the same pass."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.matrix import AttentionMatrix
from regard.matrix.index import take
from regard.matrix.reduction import AnyReduction
from regard.matrix.source import Fact
from regard.matrix.tiles import Tile, tiles


class RowPass:
    """A pass over some rows at a time, so that the means of several layers can be summed up.

    Args:
        matrix: [heads, queries, keys] or [queries, keys].
        reductions: the reductions.
    """

    def __init__(self, matrix: AttentionMatrix, reductions: Sequence[AnyReduction]) -> None:
        self.matrix = matrix
        self._reductions = reductions
        self._states: list[Any] = [reduction.start(matrix.view) for reduction in reductions]

    @torch.no_grad()
    def update(self, rows: range) -> Float[Tensor, "rows keys"]:
        """Add rows, each once; return their means over the heads."""
        view = self.matrix.view
        facts: set[Fact] = {fact for reduction in self._reductions for fact in reduction.facts}
        _, heads, _, num_keys = view.sizes
        total = torch.zeros(len(rows), num_keys, dtype=view.source.dtype, device=view.source.device)
        some = replace(view, queries=view.queries[rows.start : rows.stop])
        for tile in tiles(some, facts):
            place = slice(tile.queries.start + rows.start, tile.queries.stop + rows.start)
            whole = replace(tile, view=view, queries=place)
            for number, reduction in enumerate(self._reductions):
                self._states[number] = reduction.update(self._states[number], whole)
            _add(total[tile.queries], tile)
        return total / heads

    def finish(self) -> tuple[Any, ...]:
        """Return the result of each reduction."""
        pairs = zip(self._reductions, self._states, strict=True)
        return tuple(reduction.finish(state) for reduction, state in pairs)


def _add(total: Float[Tensor, "rows keys"], tile: Tile) -> None:
    """Add the weights of all heads of a tile."""
    weights = tile.weights[0].sum(dim=0)
    if isinstance(tile.columns, range):
        take(total, 1, tile.columns).add_(weights)
    else:
        total.index_add_(1, tile.columns.to(total.device), weights)
