"""Reductions of a matrix, some rows at a time, and the mean over its heads from the same pass."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.matrix.lazy_matrix import LazyMatrix
from regard.matrix.reduction import AnyReduction
from regard.matrix.source import Fact, take
from regard.matrix.tiles import Tile, tiles_of_rows


class RowPass:
    """A pass over some rows at a time, so that the means of several layers can be summed up.

    Args:
        matrix: [heads, queries, keys] or [queries, keys].
        reductions: the reductions.
    """

    def __init__(self, matrix: LazyMatrix, reductions: Sequence[AnyReduction]) -> None:
        self.matrix = matrix
        self._reductions = reductions
        self._states: list[Any] = [reduction.start(matrix.view) for reduction in reductions]

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.matrix.view.sizes[1]

    @torch.no_grad()
    def update(self, rows: range) -> Float[Tensor, "rows keys"]:
        """Add rows, each once; return their means over the heads."""
        view = self.matrix.view
        facts: set[Fact] = {fact for reduction in self._reductions for fact in reduction.facts}
        total = torch.zeros(
            len(rows), view.sizes[3], dtype=view.source.dtype, device=view.source.device
        )
        for tile in tiles_of_rows(view, slice(rows.start, rows.stop), facts):
            for number, reduction in enumerate(self._reductions):
                self._states[number] = reduction.update(self._states[number], tile)
            _add(total[tile.queries.start - rows.start : tile.queries.stop - rows.start], tile)
        return total / self.heads

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
