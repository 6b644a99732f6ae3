"""The weight by distance, and by relative position."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from regard.matrix.fused import FusedRows, NeedsTiles
from regard.matrix.reduction import Result, Sums, merged, require_weights, zeros
from regard.matrix.source import Fact, as_tensor
from regard.matrix.tiles import Tile
from regard.matrix.view import View
from regard.patterns.integers import is_consecutive

FAR = 4
"""A band of diagonals is computed alone if there are this many times as many keys as it reaches."""


@dataclass(frozen=True, eq=False, repr=False)
class DistanceResult(Result):
    """Distances of a head's weights, in positions.

    Attributes:
        mean: the mean distance.
        quantiles: the distance that contains a share of the weight.
        mass: the weight at each distance.
    """

    mean: Float[Tensor, "*heads"]
    quantiles: Float[Tensor, "*heads shares"]
    mass: Float[Tensor, "*heads distances"]


@dataclass(frozen=True)
class Distance:
    """The distribution of a head's weight over |key − query|.

    The weight at every distance is kept, so that quantiles are exact and states of sequences of
    different lengths can be merged.

    Args:
        shares: the quantiles to return, each from 0 to 1.

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 4, 8)
    >>> found = regard.AttentionMatrix(x, x, pattern=regard.causal())[0, 0].distance()
    >>> found.mean, found.quantiles
    (tensor(0.7500), tensor([0., 0., 0., 1., 2.]))
    """

    shares: Sequence[float] = (0.1, 0.25, 0.5, 0.75, 0.9)

    facts: ClassVar[tuple[Fact, ...]] = ()

    def __post_init__(self) -> None:
        for share in self.shares:
            if not 0.0 <= share <= 1.0:
                raise ValueError(f"Distance: shares must be from 0 to 1, got {share}")

    def start(self, view: View) -> Sums:
        require_weights(view, "Distance")
        if 0 in view.sizes:
            return Sums(view.outline, {"mass": zeros(view, 1)})
        queries, keys = view.source.positions(view.queries), as_tensor(view.keys)
        longest = max(int(queries.max() - keys[0]), int(keys[-1] - queries.min()))
        return Sums(view.outline, {"mass": zeros(view, longest + 1)})

    def update(self, state: Sums, tile: Tile) -> Sums:
        mass = tile.heads_of(state["mass"])
        offsets, sums = sums_by_offset(tile)
        mass.index_add_(2, offsets.abs(), sums.to(mass.dtype))
        return state

    def merge(self, first: Sums, second: Sums) -> Sums:
        longest = max(state["mass"].shape[2] for state in (first, second))
        states = [
            Sums(state.outline, {"mass": pad(state["mass"], (0, longest - state["mass"].shape[2]))})
            for state in (first, second)
        ]
        return merged(*states)

    def finish(self, state: Sums) -> DistanceResult:
        outline, mass = state.outline, state["mass"]
        num_distances = mass.shape[2]

        # 1. The mean. The last of the cumulated shares is exactly 1.
        cumulated = mass.cumsum(dim=2)
        total = cumulated[..., -1:]
        distances = torch.arange(num_distances, dtype=mass.dtype, device=mass.device)
        mean = (mass * distances).sum(dim=2) / total[..., 0]

        # 2. The first distance within which a share of the weight lies.
        shares = torch.tensor(self.shares, dtype=mass.dtype, device=mass.device)
        shares = shares.expand(*mass.shape[:2], -1).contiguous()
        quantiles = torch.searchsorted(cumulated / total, shares).clamp_max(num_distances - 1)
        empty = (total == 0.0) | total.isnan()
        quantiles = quantiles.to(mass.dtype).masked_fill(empty, torch.nan)

        labels = outline.labels(shares=list(self.shares), distances=range(num_distances))
        return DistanceResult(labels, *map(outline.trim, (mean, quantiles, mass)))


@dataclass(frozen=True, eq=False, repr=False)
class OffsetsResult(Result):
    """Shares of the weight by relative position, as means over the rows.

    Attributes:
        near: the share of each offset, key − query, from −reach to reach.
        beyond: the share of all other keys.
        first: the share of the key at position 0; it is also in `near` or `beyond`.
        rows: number of rows.
    """

    near: Float[Tensor, "*heads offsets"]
    beyond: Float[Tensor, "*heads"]
    first: Float[Tensor, "*heads"]
    rows: Int[Tensor, "*heads"]

    def at(self, offset: int) -> Tensor:
        """Return the share of one offset: −1 is the key just before the query."""
        return self.near[..., list(self.labels["offsets"]).index(offset)]

    @property
    def itself(self) -> Tensor:
        """The share of the query's own position."""
        return self.at(0)

    @property
    def previous(self) -> Tensor:
        """The share of the position before."""
        return self.at(-1)

    @property
    def next(self) -> Tensor:
        """The share of the position after."""
        return self.at(1)


@dataclass(frozen=True)
class Offsets:
    """Shares of the weight by relative position: itself, previous, next, up to a reach, and beyond.

    Args:
        reach: the largest offset on either side that is counted by itself, at least 1.

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 4, 8)
    >>> found = regard.AttentionMatrix(x, x, pattern=regard.causal())[0, 0].offsets(2)
    >>> found.near, found.beyond, found.first
    (tensor([0.1458, 0.2708, 0.5208, 0.0000, 0.0000]), tensor(0.0625), tensor(0.5208))
    """

    reach: int

    facts: ClassVar[tuple[Fact, ...]] = ("sums",)
    of_columns: ClassVar[bool] = False
    merge = staticmethod(merged)

    def __post_init__(self) -> None:
        if self.reach < 1:
            raise ValueError(f"Offsets: reach must be at least 1, got {self.reach}")

    def start(self, view: View) -> Sums:
        tensors = {
            "near": zeros(view, 2 * self.reach + 1),
            "total": zeros(view),
            "first": zeros(view),
            "rows": zeros(view, dtype=torch.long),
        }
        return Sums(view.outline, tensors)

    def update(self, state: Sums, tile: Tile) -> Sums:
        tile.heads_of(state["rows"]).add_(len(tile.query_positions))
        tile.heads_of(state["total"]).add_(tile.column_sums.sum(dim=2))
        keys = tile.key_positions
        if int(keys[0]) == 0:
            first = tile.weights_at(torch.zeros_like(tile.query_positions)[:, None])
            tile.heads_of(state["first"]).add_(first.sum(dim=(2, 3)))

        # Columns of the positions around each query; a missing one gives another column, and 0.
        offsets = torch.arange(-self.reach, self.reach + 1, device=keys.device)
        positions = tile.query_positions[:, None] + offsets
        if isinstance(tile.keys, range) and tile.keys.step == 1:
            columns = (positions - tile.keys.start).clamp(0, len(keys) - 1)
        else:
            columns = torch.searchsorted(keys, positions).clamp_max(len(keys) - 1)
        weights = tile.weights_at(columns).masked_fill(keys[columns] != positions, 0.0)
        tile.heads_of(state["near"]).add_(weights.sum(dim=2))
        return state

    def fused(self, rows: FusedRows) -> Sums:
        if self.reach * FAR > rows.view.sizes[3]:
            raise NeedsTiles
        state = self.start(rows.view)
        state["rows"].fill_(rows.view.sizes[2])
        state["total"].copy_(rows.share.sum(dim=2))
        state["first"].copy_(rows.first_column.sum(dim=2))
        state["near"].copy_(rows.near(self.reach))
        return state

    def finish(self, state: Sums) -> OffsetsResult:
        outline, rows = state.outline, state["rows"]
        near = state["near"] / rows[..., None]
        beyond = state["total"] / rows - near.sum(dim=-1)
        if not outline.signed:
            beyond = beyond.clamp_min(0.0)
        offsets = range(-self.reach, self.reach + 1)
        tensors = (near, beyond, state["first"] / rows, rows)
        return OffsetsResult(outline.labels(offsets=offsets), *map(outline.trim, tensors))


def sums_by_offset(
    tile: Tile,
) -> tuple[Int[Tensor, "offsets"], Float[Tensor, "batch heads offsets"]]:
    """Return offsets, key − query, and the weight of a tile at each; offsets may repeat."""
    keys, queries = tile.key_positions, tile.query_positions
    dense = int(keys[-1] - keys[0]) == len(keys) - 1
    if dense and is_consecutive(queries):
        first, last = int(keys[0] - queries[-1]), int(keys[-1] - queries[0])
        return torch.arange(first, last + 1, device=keys.device), _diagonal_sums(tile.weights)
    return (keys - queries[:, None]).flatten(), tile.weights.flatten(2)


def _diagonal_sums(weights: Tensor) -> Tensor:
    """Return the sums over the diagonals of [batch, heads, rows, columns].

    Returns:
        [batch, heads, rows + columns − 1], from the lower left corner to the upper right one.
    """
    rows, columns = weights.shape[2:]
    # Rows of `width`, viewed as rows of width + 1, shift by one each, so diagonals become columns.
    # The added columns keep diagonals apart at the ends of rows.
    width = rows + columns
    shifted = -(-rows * width // (width + 1))
    padded = weights.new_zeros(*weights.shape[:2], shifted * (width + 1))
    padded[..., : rows * width].unflatten(2, (rows, width))[..., :columns] = weights
    sums = padded.unflatten(2, (shifted, width + 1)).sum(dim=2)
    return torch.cat([sums[..., width + 2 - rows :], sums[..., :columns]], dim=2)
