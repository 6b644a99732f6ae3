"""The effective number of keys of a row."""

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
    >>> regard.AttentionMatrix(x, x, pattern=regard.causal())[0, 0].effective_keys().count
    tensor([1.0000, 2.0000, 3.0000, 4.0000])
    """

    facts: ClassVar[tuple[Fact, ...]] = ("entropy",)
    of_columns: ClassVar[bool] = False
    merge = staticmethod(merged)

    def start(self, view: View) -> Sums:
        check_weights(view, "EffectiveKeys")
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
