"""The strongest keys of each row."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.matrix.groups import GROUP
from regard.matrix.reduction import Sums, merged, rows_of_zeros, zeros
from regard.matrix.result import Result
from regard.matrix.source import Fact
from regard.matrix.tiles import Tile
from regard.matrix.view import View


@dataclass(frozen=True, eq=False, repr=False)
class TopKeysResult(Result):
    """The strongest keys of each row, in descending order; effects by absolute value.

    Attributes:
        keys: their indices; −1 without further keys of non-zero weight.
        weights: their weights; 0 for −1.
    """

    keys: Int[Tensor, "*heads queries ranks"]
    weights: Float[Tensor, "*heads queries ranks"]


@dataclass(frozen=True)
class TopKeys:
    """The k strongest keys of each row; the order of equal weights is undefined.

    Args:
        count: number of keys per row, at least 1.

    >>> import torch, regard
    >>> x = torch.eye(3)[None, None] * 9
    >>> regard.AttentionMatrix(x, x, pattern=regard.causal())[0, 0].top(1).keys
    tensor([[0],
            [1],
            [2]])
    """

    count: int

    facts: ClassVar[tuple[Fact, ...]] = ("group_max",)
    merge = staticmethod(merged)

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"TopKeys: count must be at least 1, got {self.count}")

    def start(self, view: View) -> Sums:
        state = rows_of_zeros(view, weights=(self.count,))
        # Counted from 1, so that 0 is none and states can be added.
        state.tensors["numbers"] = zeros(view, view.sizes[2], self.count, dtype=torch.long)
        return state

    def update(self, state: Sums, tile: Tile) -> Sums:
        weights, columns = strongest(tile, min(self.count, len(tile.columns)))
        numbers = (tile.key_positions[columns] + 1).masked_fill(weights == 0.0, 0)
        tile.rows_of(state["weights"])[..., : weights.shape[-1]].add_(weights)
        tile.rows_of(state["numbers"])[..., : weights.shape[-1]].add_(numbers)
        tile.rows_of(state["seen"]).add_(1)
        return state

    def finish(self, state: Sums) -> TopKeysResult:
        outline = state.outline
        labels = outline.labels(ranks=range(1, self.count + 1))
        keys, weights = outline.trim(state["numbers"] - 1), outline.trim(state["weights"])
        return TopKeysResult(labels, keys, weights)


def strongest(
    tile: Tile, count: int
) -> tuple[
    Float[Tensor, "batch heads rows strongest"],
    Int[Tensor, "batch heads rows strongest"],
]:
    """Return the weights of the largest magnitude of each row, and their columns in the tile."""
    if tile.group_max.shape[3] <= 2 * count:
        columns = tile.magnitudes.topk(count, dim=3).indices
        return tile.weights_at(columns), columns
    # The k largest numbers are in the k groups with the largest maxima.
    groups = tile.group_max.topk(count, dim=3).indices
    candidates = tile.weights_of_groups(groups)
    sizes = candidates.abs() if tile.view.source.signed else candidates
    places = sizes.topk(count, dim=3).indices
    columns = groups.gather(3, places // GROUP) * GROUP + places % GROUP
    # A column beyond the last has 0, and so is only among the strongest where others have it too.
    return candidates.gather(3, places), columns.clamp_max(len(tile.columns) - 1)
