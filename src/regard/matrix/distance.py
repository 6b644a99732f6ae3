"""Distances between queries and keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from regard.matrix.index import as_tensor
from regard.matrix.reduction import Sums, check_weights, merged, zeros
from regard.matrix.result import Result
from regard.matrix.source import Fact
from regard.matrix.tiles import Tile
from regard.matrix.view import View


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
        check_weights(view, "Distance")
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
        return merged(
            *(
                Sums(state.outline, {"mass": pad(mass, (0, longest - mass.shape[2]))})
                for state in (first, second)
                for mass in (state["mass"],)
            )
        )

    def finish(self, state: Sums) -> DistanceResult:
        outline, mass = state.outline, state["mass"]
        far = torch.arange(mass.shape[2], dtype=mass.dtype, device=mass.device)
        so_far = mass.cumsum(dim=2)
        # The last share is exactly 1.
        total = so_far[..., -1:]
        mean = (mass * far).sum(dim=2) / total[..., 0]
        share = so_far / total
        wanted = torch.tensor(self.shares, dtype=mass.dtype, device=mass.device)
        wanted = wanted.expand(*share.shape[:2], -1).contiguous()
        found = torch.searchsorted(share, wanted).clamp_max(mass.shape[2] - 1).to(mass.dtype)
        found = found.masked_fill((total == 0.0) | total.isnan(), torch.nan)
        labels = outline.labels(shares=list(self.shares), distances=range(mass.shape[2]))
        return DistanceResult(labels, *(outline.trim(x) for x in (mean, found, mass)))


def sums_by_offset(
    tile: Tile,
) -> tuple[Int[Tensor, "offsets"], Float[Tensor, "batch heads offsets"]]:
    """Return offsets, key − query, and the weight of a tile at each; offsets may repeat."""
    keys, queries = tile.key_positions, tile.query_positions
    dense = int(keys[-1] - keys[0]) == len(keys) - 1
    if dense and bool((queries.diff() == 1).all()):
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
