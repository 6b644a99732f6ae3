"""Weights between groups of queries and groups of keys, such as words or sentences."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.matrix.fused import FusedRows, NeedsTiles
from regard.matrix.index import take
from regard.matrix.reduction import Sums, merged, zeros
from regard.matrix.result import Result
from regard.matrix.source import Fact
from regard.matrix.tiles import Tile
from regard.matrix.view import View

FEW_GROUPS = 64
"""Up to so many groups of keys are the values of one fused call: most heads have more features."""


@dataclass(frozen=True, eq=False, repr=False)
class BetweenResult(Result):
    """Sums over pairs of groups, which are labelled by number.

    Attributes:
        weights: Σ member_i · weight_ij · member_j, for each group of queries and of keys.
    """

    weights: Float[Tensor, "*heads query_groups key_groups"]


@dataclass(frozen=True, eq=False)
class Between:
    """Weights between groups of queries and keys: queries @ A @ keysᵀ for each head.

    Attention from word to word, for words of several tokens, is the mean over the tokens of the
    query word and the sum over those of the key word: queries are 1 / number of tokens of the word,
    and keys are 1.

    Args:
        queries: membership of queries in groups, [batch, groups, queries] of the whole matrix:
            boolean, or weights. Groups may overlap, be empty or leave some out.
        keys: the same for keys, [batch, groups, keys]; the number of groups may differ.

    >>> import torch, regard
    >>> from regard.matrix import Between
    >>> x = torch.zeros(1, 1, 4, 8)
    >>> words = torch.tensor([[[True, False, False, False], [False, True, True, False]]])
    >>> mean = words / words.sum(dim=2, keepdim=True)
    >>> regard.AttentionMatrix(x, x)[0, 0].summarize(Between(mean, words))[0].weights
    tensor([[0.2500, 0.5000],
            [0.2500, 0.5000]])
    """

    queries: (
        Bool[Tensor, "batch query_groups queries"] | Float[Tensor, "batch query_groups queries"]
    )
    keys: Bool[Tensor, "batch key_groups keys"] | Float[Tensor, "batch key_groups keys"]

    facts: ClassVar[tuple[Fact, ...]] = ()
    of_columns: ClassVar[bool] = False
    merge = staticmethod(merged)

    def __post_init__(self) -> None:
        for name in ("queries", "keys"):
            groups: object = getattr(self, name)
            if not isinstance(groups, Tensor):
                raise TypeError(f"Between: {name} must be a tensor, got {type(groups).__name__}")
            if groups.dtype != torch.bool and not groups.is_floating_point():
                raise TypeError(
                    f"Between: {name} must be boolean or floating, got {groups.dtype}; "
                    "for counts use .double()"
                )

    def start(self, view: View) -> Sums:
        batch, _, num_queries, num_keys = view.source.shape
        for name, groups, size in (
            ("queries", self.queries, num_queries),
            ("keys", self.keys, num_keys),
        ):
            if groups.dim() != 3 or (groups.shape[0], groups.shape[2]) != (batch, size):
                raise ValueError(
                    f"Between: {name} must have the shape [{batch}, groups, {size}], "
                    f"got {list(groups.shape)}"
                )
        sums = zeros(view, self.queries.shape[1], self.keys.shape[1])
        return Sums(view.outline, {"sums": sums})

    def update(self, state: Sums, tile: Tile) -> Sums:
        weights, batch = tile.weights, tile.rows.batch
        queries, rows = _present(take(take(self.queries, 0, batch), 2, tile.rows.queries))
        keys, columns = _present(take(take(self.keys, 0, batch), 2, tile.keys))
        found = queries.to(weights)[:, None] @ weights @ keys.to(weights)[:, None].mT
        sums = tile.heads_of(state["sums"])
        sums[:, :, rows.to(sums.device)[:, None], columns.to(sums.device)] += found
        return state

    def fused(self, rows: FusedRows) -> Sums:
        view, source = rows.view, rows.view.source
        state = self.start(view)
        keys = take(self.keys, 0, view.batch)
        # Of many groups, most have no member in a tile, which is cheaper.
        if not 0 < keys.shape[1] <= FEW_GROUPS:
            raise NeedsTiles
        queries = take(take(self.queries, 0, view.batch), 2, view.queries)
        sums = rows.times(keys.mT[:, None].to(source.device, source.dtype))
        state["sums"].copy_(queries.to(sums)[:, None] @ sums)
        return state

    def finish(self, state: Sums) -> BetweenResult:
        outline, sums = state.outline, state["sums"]
        labels = outline.labels(query_groups=range(sums.shape[2]), key_groups=range(sums.shape[3]))
        return BetweenResult(labels, outline.trim(sums))


def _present(groups: Tensor) -> tuple[Tensor, Tensor]:
    """Return the groups that have a member here, [batch, some, members], and their numbers.

    A tile holds few of the sentences of a long text, and products with the others are all 0.
    """
    members = groups if groups.dtype == torch.bool else groups.ne(0)
    numbers = members.any(dim=2).any(dim=0).nonzero()[:, 0]
    return groups[:, numbers], numbers
