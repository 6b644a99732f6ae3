"""The weight that keys receive: each key, groups of keys, groups of keys from groups of queries."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.matrix.fused import FusedRows, NeedsTiles
from regard.matrix.reduction import Result, Sums, merged, zeros
from regard.matrix.source import Fact, as_tensor, take
from regard.matrix.tiles import Tile
from regard.matrix.view import View
from regard.patterns import Pattern

FEW_GROUPS = 64
"""Up to so many groups of keys are the values of one fused call: most heads have more features.

Of more groups, few have a member in a tile, and the others take no time there.
"""


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


@dataclass(frozen=True, eq=False, repr=False)
class MassResult(Result):
    """Shares of the weight by group, as means over the rows.

    Attributes:
        share: the share of each group. Groups may overlap, or leave keys out.
        rows: number of rows.
    """

    share: Float[Tensor, "*heads groups"]
    rows: Int[Tensor, "*heads"]


@dataclass(frozen=True, eq=False)
class Mass:
    """The share of the weight on groups of keys: separators, punctuation, the same token.

    Args:
        groups: the keys of each group by name: a boolean tensor [keys] or [batch, keys] of the
            whole matrix; or a pattern, if they depend on the query: `documents(token_ids)` is the
            group of keys with the query's own token.

    >>> import torch, regard
    >>> from regard.matrix import Mass
    >>> x = torch.zeros(1, 1, 4, 8)
    >>> full_stop = torch.tensor([False, False, False, True])
    >>> groups = {"full stop": full_stop, "same token": regard.documents([7, 8, 7, 9])}
    >>> regard.AttentionMatrix(x, x)[0, 0].summarize(Mass(groups))[0].share
    tensor([0.2500, 0.3750])
    """

    groups: Mapping[str, Tensor | Pattern]

    facts: ClassVar[tuple[Fact, ...]] = ("sums",)
    of_columns: ClassVar[bool] = True
    merge = staticmethod(merged)

    def __post_init__(self) -> None:
        for name, group in self.groups.items():
            if isinstance(group, Pattern):
                continue
            if not isinstance(group, Tensor) or group.dtype != torch.bool:  # pyright: ignore[reportUnnecessaryIsInstance]
                kind = group.dtype if isinstance(group, Tensor) else type(group).__name__  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(
                    f"Mass: group {name!r} must be a boolean tensor or a pattern, got {kind}"
                )

    def start(self, view: View) -> Sums:
        batch, _, _, num_keys = view.source.shape
        for name, group in self.groups.items():
            if isinstance(group, Tensor):
                if group.shape not in ((num_keys,), (batch, num_keys)):
                    raise ValueError(
                        f"Mass: group {name!r} must have the shape [{num_keys}] or "
                        f"[{batch}, {num_keys}], got {list(group.shape)}"
                    )
            else:
                view.check(group)
        tensors = {"share": zeros(view, len(self.groups)), "rows": zeros(view, dtype=torch.long)}
        return Sums(view.outline, tensors)

    def update(self, state: Sums, tile: Tile) -> Sums:
        share = tile.heads_of(state["share"])
        for number, group in enumerate(self.groups.values()):
            if isinstance(group, Pattern):
                weight = (tile.weights * tile.test(group)).sum(dim=(2, 3))
            else:
                batch = as_tensor(tile.rows.batch)
                members = group[batch] if group.dim() == 2 else group[None]
                members = members.to(tile.device)[:, None, tile.key_positions]
                weight = (tile.column_sums * members).sum(dim=2)
            share[..., number].add_(weight)
        tile.heads_of(state["rows"]).add_(len(tile.query_positions))
        return state

    def fused(self, rows: FusedRows) -> Sums:
        state, view = self.start(rows.view), rows.view
        if any(isinstance(group, Pattern) for group in self.groups.values()):
            raise NeedsTiles

        for number, group in enumerate(self.groups.values()):
            assert isinstance(group, Tensor)
            members = group[as_tensor(view.batch)] if group.dim() == 2 else group[None]
            members = members.to(view.source.device)[:, None]
            state["share"][..., number] = (rows.column_sums * members).sum(dim=2)
        state["rows"].fill_(view.sizes[2])
        return state

    def finish(self, state: Sums) -> MassResult:
        outline, rows = state.outline, state["rows"]
        share = outline.trim(state["share"] / rows[..., None])
        return MassResult(outline.labels(groups=list(self.groups)), share, outline.trim(rows))


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
        products = queries.to(weights)[:, None] @ weights @ keys.to(weights)[:, None].mT
        sums = tile.heads_of(state["sums"])
        sums[:, :, rows.to(sums.device)[:, None], columns.to(sums.device)] += products
        return state

    def fused(self, rows: FusedRows) -> Sums:
        state, view = self.start(rows.view), rows.view
        keys = take(self.keys, 0, view.batch)
        if not 0 < keys.shape[1] <= FEW_GROUPS:
            raise NeedsTiles

        by_query = rows.times(keys.mT[:, None].to(view.source.device, view.source.dtype))
        queries = take(take(self.queries, 0, view.batch), 2, view.queries)
        state["sums"].copy_(queries.to(by_query)[:, None] @ by_query)
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
