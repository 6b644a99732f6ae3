"""The entropy of rows."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from regard.matrix.fused import FusedRows
from regard.matrix.reduction import Sums, check_weights, merged, rows_of_zeros
from regard.matrix.result import Result
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
        check_weights(view, "Entropy")
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
        return EntropyResult(
            state.outline.labels(), state.outline.trim(state["nats"].clamp_min(0.0))
        )
