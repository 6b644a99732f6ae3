"""How many keys a row looks at."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from regard.matrix.reduction import Sums, check_weights, merged, rows_of_zeros
from regard.matrix.result import Result
from regard.matrix.source import Fact
from regard.matrix.tiles import Tile
from regard.matrix.view import View


@dataclass(frozen=True, eq=False, repr=False)
class EffectiveKeysResult(Result):
    """How many keys each row looks at, in effect."""

    count: Float[Tensor, "*heads queries"]


@dataclass(frozen=True)
class EffectiveKeys:
    """How many keys a row looks at in effect: as many as would give its entropy if all were alike.

    It is the exponential of the entropy of the row, scaled to a sum of 1 where a sink or a column
    that isn't in the view takes a share. A row that may look at nothing has 0.

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 4, 8)
    >>> regard.AttentionMatrix(x, x, pattern=regard.causal())[0, 0].effective_keys().count
    tensor([1.0000, 2.0000, 3.0000, 4.0000])
    """

    facts: ClassVar[tuple[Fact, ...]] = ("entropy",)
    merge = staticmethod(merged)

    def start(self, view: View) -> Sums:
        check_weights(view, "EffectiveKeys")
        return rows_of_zeros(view, count=())

    def update(self, state: Sums, tile: Tile) -> Sums:
        tile.rows_of(state["count"]).add_(effective_keys(tile))
        tile.rows_of(state["seen"]).fill_(1)
        return state

    def finish(self, state: Sums) -> EffectiveKeysResult:
        return EffectiveKeysResult(state.outline.labels(), state.outline.trim(state["count"]))


def effective_keys(tile: Tile) -> Float[Tensor, "batch heads rows"]:
    """Return how many keys the rows of a tile look at, in effect."""
    share = tile.row_sums
    count = share * (tile.entropy / share).exp()
    return count.masked_fill(share == 0.0, 0.0)
