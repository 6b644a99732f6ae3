"""The weight that keys receive."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.matrix.fused import FusedRows
from regard.matrix.reduction import Sums, merged, zeros
from regard.matrix.result import Result
from regard.matrix.source import Fact
from regard.matrix.tiles import Tile
from regard.matrix.view import View


@dataclass(frozen=True, eq=False, repr=False)
class ReceivedResult(Result):
    """The weight that each key receives.

    Attributes:
        mean: the mean weight over the queries that may attend to the key; NaN without any.
        queries: number of these queries.
    """

    mean: Float[Tensor, "*heads keys"]
    queries: Int[Tensor, "*heads keys"]

    @property
    def total(self) -> Tensor:
        """The sum of the weights."""
        return self.mean.nan_to_num() * self.queries


@dataclass(frozen=True)
class Received:
    """The weight that each key receives, as the mean over the queries that may attend to it.

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 3, 8)
    >>> regard.AttentionMatrix(x, x, pattern=regard.causal())[0, 0].received().mean
    tensor([0.6111, 0.4167, 0.3333])
    """

    facts: ClassVar[tuple[Fact, ...]] = ("sums",)
    of_columns: ClassVar[bool] = True
    merge = staticmethod(merged)

    def start(self, view: View) -> Sums:
        num_keys = view.sizes[3]
        sums, counts = zeros(view, num_keys), zeros(view, num_keys, dtype=torch.long)
        return Sums(view.outline, {"weights": sums, "queries": counts}, of_keys=True)

    def update(self, state: Sums, tile: Tile) -> Sums:
        tile.add_to_columns(state["weights"], tile.column_sums)
        tile.add_to_columns(state["queries"], tile.num_allowed_queries)
        return state

    def fused(self, rows: FusedRows) -> Sums:
        state = self.start(rows.view)
        state["queries"].add_(rows.num_allowed_queries)
        state["weights"].copy_(rows.column_sums)
        return state

    def finish(self, state: Sums) -> ReceivedResult:
        outline = state.outline
        mean = outline.trim(state["weights"] / state["queries"])
        return ReceivedResult(outline.labels(), mean, outline.trim(state["queries"]))
