"""The weight by relative position."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.matrix.fused import FusedRows, NeedsTiles
from regard.matrix.reduction import Sums, merged, zeros
from regard.matrix.result import Result
from regard.matrix.source import Fact
from regard.matrix.tiles import Tile
from regard.matrix.view import View

_NEAR = 4
"""Diagonals are computed alone if there are this many times as many keys on either side."""


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
        tensors = {"near": zeros(view, 2 * self.reach + 1)}
        tensors |= {name: zeros(view) for name in ("total", "first")}
        tensors["rows"] = zeros(view, dtype=torch.long)
        return Sums(view.outline, tensors)

    def update(self, state: Sums, tile: Tile) -> Sums:
        tile.heads_of(state["rows"]).add_(len(tile.query_positions))
        tile.heads_of(state["total"]).add_(tile.column_sums.sum(dim=2))
        keys = tile.key_positions
        if int(keys[0]) == 0:
            first = tile.weights_at(torch.zeros_like(tile.query_positions)[:, None])
            tile.heads_of(state["first"]).add_(first.sum(dim=(2, 3)))
        offsets = torch.arange(-self.reach, self.reach + 1, device=keys.device)
        wanted = tile.query_positions[:, None] + offsets
        if isinstance(tile.keys, range) and tile.keys.step == 1:
            columns = (wanted - tile.keys.start).clamp(0, len(keys) - 1)
        else:
            columns = torch.searchsorted(keys, wanted).clamp_max(len(keys) - 1)
        found = tile.weights_at(columns).masked_fill(keys[columns] != wanted, 0.0)
        tile.heads_of(state["near"]).add_(found.sum(dim=2))
        return state

    def fused(self, rows: FusedRows) -> Sums:
        if self.reach * _NEAR > rows.view.sizes[3]:
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
        found = (outline.trim(x) for x in (near, beyond, state["first"] / rows, rows))
        return OffsetsResult(outline.labels(offsets=offsets), *found)
