"""The entropy of rows, in nats and as an effective number of keys."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from regard.matrix.fused import FusedRows
from regard.matrix.reduction import Result, Sums, merged, require_weights, rows_of_zeros
from regard.matrix.source import Fact
from regard.matrix.tiles import Tile
from regard.matrix.view import View


@dataclass(frozen=True, eq=False, repr=False)
class EntropyResult(Result):
    """The entropy of each row, in nats."""

    nats: Float[Tensor, "*heads queries"]


@dataclass(frozen=True)
class Entropy:
    """−Σ w · log w over the weights of each row, in nats: 0 for one key, log n for n alike.

    A row without allowed keys has 0. With a sink, or some columns only, the sum is over the weights
    of the view.

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 4, 8)
    >>> regard.AttentionMatrix(x, x, pattern=regard.causal())[0, 0].entropy().nats
    tensor([0.0000, 0.6931, 1.0986, 1.3863])
    """

    facts: ClassVar[tuple[Fact, ...]] = ("entropy",)
    of_columns: ClassVar[bool] = False
    merge = staticmethod(merged)

    def start(self, view: View) -> Sums:
        require_weights(view, "Entropy")
        return rows_of_zeros(view, nats=())

    def update(self, state: Sums, tile: Tile) -> Sums:
        tile.rows_of(state["nats"]).add_(tile.entropy)
        tile.rows_of(state["seen"]).fill_(1)
        return state

    def fused(self, rows: FusedRows) -> Sums:
        state = self.start(rows.view)
        state["nats"].copy_(rows.entropy)
        state["seen"].fill_(1)
        return state

    def finish(self, state: Sums) -> EntropyResult:
        nats = state["nats"].clamp_min(0.0)
        return EntropyResult(state.outline.labels(), state.outline.trim(nats))


@dataclass(frozen=True, eq=False, repr=False)
class EffectiveKeysResult(Result):
    """The effective number of keys of each row."""

    count: Float[Tensor, "*heads queries"]


@dataclass(frozen=True)
class EffectiveKeys:
    """The effective number of keys of each row: n equal weights give n.

    It is the exponential of the entropy of the row, normalised to a sum of 1 if a sink or other
    columns have a share. A row without allowed keys has 0.

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 4, 8)
    >>> A = regard.AttentionMatrix(x, x, pattern=regard.causal())
    >>> A[0, 0].effective_keys().count.round(decimals=4)
    tensor([1., 2., 3., 4.])
    """

    facts: ClassVar[tuple[Fact, ...]] = ("entropy",)
    of_columns: ClassVar[bool] = False
    merge = staticmethod(merged)

    def start(self, view: View) -> Sums:
        require_weights(view, "EffectiveKeys")
        return rows_of_zeros(view, count=())

    def update(self, state: Sums, tile: Tile) -> Sums:
        tile.rows_of(state["count"]).add_(effective_keys(tile.entropy, tile.row_sums))
        tile.rows_of(state["seen"]).fill_(1)
        return state

    def fused(self, rows: FusedRows) -> Sums:
        state = self.start(rows.view)
        state["count"].copy_(effective_keys(rows.entropy, rows.share))
        state["seen"].fill_(1)
        return state

    def finish(self, state: Sums) -> EffectiveKeysResult:
        return EffectiveKeysResult(state.outline.labels(), state.outline.trim(state["count"]))


def effective_keys(
    entropy: Float[Tensor, "batch heads rows"], share: Float[Tensor, "batch heads rows"]
) -> Float[Tensor, "batch heads rows"]:
    """Return the effective number of keys of rows, from their entropy and sum."""
    count = share * (entropy / share).exp()
    return count.masked_fill(share == 0.0, 0.0)
