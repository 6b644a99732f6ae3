"""Count rows whose strongest key is a target."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from regard.matrix.reduction import Sums, merged, zeros
from regard.matrix.result import Result
from regard.matrix.source import Fact
from regard.matrix.tiles import Tile
from regard.matrix.top_keys import strongest
from regard.matrix.view import View
from regard.patterns import Pattern


@dataclass(frozen=True, eq=False, repr=False)
class HitsResult(Result):
    """Counts of rows whose strongest key is one of their targets.

    Attributes:
        hits: number of such rows.
        rows: number of rows with an allowed target.
    """

    hits: Int[Tensor, "*heads"]
    rows: Int[Tensor, "*heads"]

    @property
    def rate(self) -> Tensor:
        """The share of hits."""
        return self.hits / self.rows


@dataclass(frozen=True)
class Hits:
    """Count the rows whose strongest key is one of their targets.

    Args:
        targets: the target keys of each query, as a pattern, such as `neighbours(edges)` for
            relations between words.

    >>> import torch, regard
    >>> from regard.matrix import Hits
    >>> x = torch.eye(3)[None, None] * 9
    >>> regard.AttentionMatrix(x, x)[0, 0].summarize(Hits(regard.window(before=0)))[0].rate
    tensor(1.)
    """

    targets: Pattern

    facts: ClassVar[tuple[Fact, ...]] = ("group_max",)
    merge = staticmethod(merged)

    def start(self, view: View) -> Sums:
        view.check(self.targets)
        tensors = {name: zeros(view, dtype=torch.long) for name in ("hits", "rows")}
        return Sums(view.outline, tensors)

    def update(self, state: Sums, tile: Tile) -> Sums:
        weights, columns = strongest(tile, 1)
        targets = tile.test(self.targets) & tile.allowed(slice(None))
        hit = targets.expand(tile.shape).gather(3, columns) & (weights != 0.0)
        tile.heads_of(state["hits"]).add_(hit.sum(dim=(2, 3)))
        tile.heads_of(state["rows"]).add_(targets.any(dim=3).sum(dim=2))
        return state

    def finish(self, state: Sums) -> HitsResult:
        outline = state.outline
        found = (outline.trim(state[name]) for name in ("hits", "rows"))
        return HitsResult(outline.labels(), *found)
