"""The weight on groups of keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.matrix.fused import FusedRows, NeedsTiles
from regard.matrix.index import as_tensor
from regard.matrix.reduction import Sums, merged, zeros
from regard.matrix.result import Result
from regard.matrix.source import Fact
from regard.matrix.tiles import Tile
from regard.matrix.view import View
from regard.patterns import Pattern


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
                found = (tile.weights * tile.test(group)).sum(dim=(2, 3))
            else:
                batch = as_tensor(tile.rows.batch)
                members = group[batch] if group.dim() == 2 else group[None]
                members = members.to(tile.device)[:, None, tile.key_positions]
                found = (tile.column_sums * members).sum(dim=2)
            share[..., number].add_(found)
        tile.heads_of(state["rows"]).add_(len(tile.query_positions))
        return state

    def fused(self, rows: FusedRows) -> Sums:
        state, view = self.start(rows.view), rows.view
        for number, group in enumerate(self.groups.values()):
            if isinstance(group, Pattern):
                raise NeedsTiles
            members = group[as_tensor(view.batch)] if group.dim() == 2 else group[None]
            members = members.to(view.source.device)[:, None]
            state["share"][..., number] = (rows.column_sums * members).sum(dim=2)
        state["rows"].fill_(view.sizes[2])
        return state

    def finish(self, state: Sums) -> MassResult:
        outline, rows = state.outline, state["rows"]
        share = outline.trim(state["share"] / rows[..., None])
        return MassResult(outline.labels(groups=list(self.groups)), share, outline.trim(rows))
