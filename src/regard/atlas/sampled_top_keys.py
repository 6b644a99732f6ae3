"""The strongest keys of a few rows of a sequence."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.matrix.reduction import Result, Sums, merged, zeros
from regard.matrix.source import Fact
from regard.matrix.tiles import Tile
from regard.matrix.view import View


@dataclass(frozen=True, eq=False, repr=False)
class GlimpsesResult(Result):
    """The strongest key of each chosen row.

    Attributes:
        weights: its weight; 0 without a key.
        keys: its index; −1 without a key.
    """

    weights: Float[Tensor, "batch heads chosen"]
    keys: Int[Tensor, "batch heads chosen"]


@dataclass(frozen=True, eq=False)
class Glimpses:
    """The reduction that computes `GlimpsesResult`.

    Args:
        rows: the chosen rows of each sequence.
        hidden: keys to exclude; the row's own key always is.
    """

    rows: Int[Tensor, "batch chosen"]
    hidden: Bool[Tensor, "batch keys"]
    _inside: dict[Hashable, list[Tensor]] = field(default_factory=dict, init=False)

    facts: ClassVar[tuple[Fact, ...]] = ()
    merge = staticmethod(merged)

    def start(self, view: View) -> Sums:
        chosen = self.rows.shape[1]
        # Counted from 1, so that 0 is none and states can be added.
        tensors = {"weights": zeros(view, chosen), "numbers": zeros(view, chosen, dtype=torch.long)}
        return Sums(view.outline, tensors)

    def update(self, state: Sums, tile: Tile) -> Sums:
        batch, which, row, hidden = self._rows_in(tile)
        found = tile.weights[batch, :, row].masked_fill(hidden, 0.0)
        weights, columns = found.max(dim=2)
        numbers = (tile.key_positions[columns] + 1).masked_fill(weights == 0.0, 0)
        tile.heads_of(state["weights"])[batch, :, which] += weights
        tile.heads_of(state["numbers"])[batch, :, which] += numbers
        return state

    def _rows_in(self, tile: Tile) -> list[Tensor]:
        """Return the chosen rows in a tile; cached for all layers of a model.

        Returns:
            For each, its sequence in the tile, its number among the chosen ones, its row in the
            tile, [rows] each, and the excluded columns, [rows, 1, columns].
        """
        if tile.place not in self._inside:
            rows = self.rows[tile.batch].to(tile.device) - tile.queries.start
            batch, which = ((rows >= 0) & (rows < tile.shape[2])).nonzero().T
            row, keys = rows[batch, which], tile.key_positions
            hidden = self.hidden.to(keys.device)[tile.batch][:, keys][batch]
            hidden |= keys == tile.query_positions[row][:, None]
            self._inside[tile.place] = [batch, which, row, hidden[:, None]]
        return self._inside[tile.place]

    def finish(self, state: Sums) -> GlimpsesResult:
        labels = state.outline.labels(chosen=range(self.rows.shape[1]))
        return GlimpsesResult(labels, state["weights"], state["numbers"] - 1)
