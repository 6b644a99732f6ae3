"""The matrix as a graph: its strongest pairs."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.matrix.groups import GROUP
from regard.matrix.reduction import merged_rows, zeros
from regard.matrix.result import Result
from regard.matrix.source import Fact
from regard.matrix.tiles import Tile
from regard.matrix.view import AXES, Outline, View

_PARTS = 8
"""Parts of a tile if all of its groups of columns have edges."""


@dataclass(frozen=True, eq=False, repr=False)
class EdgesResult(Result):
    """The strongest pairs, the strongest first.

    Attributes:
        batch: the sequence of each.
        heads: its head.
        queries: its query.
        keys: its key.
        weights: its weight.
        total: number of pairs that reach the threshold, including those beyond the limit.
    """

    batch: Int[Tensor, "edges"]
    heads: Int[Tensor, "edges"]
    queries: Int[Tensor, "edges"]
    keys: Int[Tensor, "edges"]
    weights: Float[Tensor, "edges"]
    total: int


@dataclass
class EdgesState:
    """Edges found so far.

    Attributes:
        outline: the outline of the view.
        pairs: the flat index of each edge in the matrix, [edges] in parts.
        weights: their weights, in the same parts.
        total: number of edges, including those that were not kept.
        seen: how often each row was counted, [batch, heads, queries].
    """

    outline: Outline
    pairs: list[Tensor]
    weights: list[Tensor]
    total: int
    seen: Tensor

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The sizes for flat indices, with all keys of the source."""
        keys = self.outline.places["keys"]
        return *self.outline.sizes[:3], int(keys[-1]) + 1 if keys else 1

    def numbers(
        self, tile: Tile, rows: Int[Tensor, "pairs 3"], columns: Int[Tensor, "pairs"]
    ) -> Int[Tensor, "pairs"]:
        """Return flat indices of pairs, from batch, head and row in a tile, and columns."""
        corner = (tile.batch.start, tile.heads.start, tile.queries.start)
        batch, head, query = (rows + torch.tensor(corner, device=rows.device)).unbind(dim=1)
        _, num_heads, num_queries, num_keys = self.sizes
        row = (batch * num_heads + head) * num_queries + query
        return row * num_keys + tile.key_positions[columns]

    def cut(self, limit: int) -> None:
        """Keep the strongest edges, as one sorted part.

        Equal weights are in the order of the matrix, so the order of merging does not matter.
        """
        pairs, order = torch.cat(self.pairs).sort()
        weights = torch.cat(self.weights)[order]
        order = weights.abs().sort(descending=True, stable=True).indices[:limit]
        self.pairs, self.weights = [pairs[order]], [weights[order]]


@dataclass(frozen=True)
class Edges:
    """The pairs whose weight reaches a threshold: the edges of the attention graph.

    Effects are compared by absolute value.

    Args:
        threshold: the minimum weight of an edge, above 0. A row of weights has at most
            1 / threshold edges.
        limit: number of edges to keep, the strongest of all heads. Memory grows with it, not with
            the number of edges; the result has their `total`.

    >>> import torch, regard
    >>> x = torch.eye(3)[None, None] * 9
    >>> found = regard.AttentionMatrix(x, x)[0, 0].edges(threshold=0.1)
    >>> found.queries, found.keys, found.total
    (tensor([0, 1, 2]), tensor([0, 1, 2]), 3)
    """

    threshold: float
    limit: int = 100_000

    facts: ClassVar[tuple[Fact, ...]] = ("group_max",)

    def __post_init__(self) -> None:
        if not self.threshold > 0.0:
            raise ValueError(f"Edges: threshold must be above 0, got {self.threshold}")
        if self.limit < 0:
            raise ValueError(f"Edges: limit must be at least 0, got {self.limit}")

    def start(self, view: View) -> EdgesState:
        device = view.source.device
        pairs = torch.zeros(0, dtype=torch.long, device=device)
        weights = torch.zeros(0, dtype=view.source.dtype, device=device)
        seen = zeros(view, view.sizes[2], dtype=torch.uint8)
        return EdgesState(view.outline, [pairs], [weights], 0, seen)

    def update(self, state: EdgesState, tile: Tile) -> EdgesState:
        tile.rows_of(state.seen).add_(1)
        # Search only groups of columns with an edge, which are few. If many, some at a time take
        # less memory than the tile.
        groups = (tile.group_max >= self.threshold).nonzero()
        few = _PARTS * len(groups) < tile.group_max.numel()
        sizes = _looked_into(tile, groups)[0].abs() if few else tile.magnitudes
        state.total += int((sizes >= self.threshold).count_nonzero())
        if self.limit:
            for some in groups.split(max(1, tile.shape.numel() // GROUP // _PARTS)):
                self._add(state, tile, some)
        return state

    def _add(self, state: EdgesState, tile: Tile, groups: Int[Tensor, "groups 4"]) -> None:
        """Add the edges in some groups of columns of a tile: batch, head, row and group."""
        least = self.threshold
        if len(state.pairs[0]) >= self.limit:
            # Edges after the last kept one can't be among the strongest.
            least, behind = state.weights[0][-1].abs().item(), state.pairs[0][-1]
            group_max = tile.group_max[groups.unbind(dim=1)]
            first = state.numbers(tile, groups[:, :3], groups[:, 3] * GROUP)
            groups = groups[(group_max > least) | ((group_max == least) & (first < behind))]
        weights, columns = _looked_into(tile, groups)
        edge, inside = (weights.abs() >= least).nonzero(as_tuple=True)
        state.pairs.append(state.numbers(tile, groups[edge, :3], columns[edge, inside]))
        state.weights.append(weights[edge, inside])
        if sum(map(len, state.pairs)) >= 2 * self.limit:
            state.cut(self.limit)

    def merge(self, first: EdgesState, second: EdgesState) -> EdgesState:
        seen = merged_rows(first.outline, first.seen, second.outline, second.seen)
        device = first.seen.device
        pairs, weights = (
            [*mine, *(part.to(device) for part in others)]
            for mine, others in ((first.pairs, second.pairs), (first.weights, second.weights))
        )
        state = EdgesState(first.outline, pairs, weights, first.total + second.total, seen)
        state.cut(self.limit)
        return state

    def finish(self, state: EdgesState) -> EdgesResult:
        state.cut(self.limit)
        (pairs,), (weights,) = state.pairs, state.weights
        _, num_heads, num_queries, num_keys = state.sizes
        rows, keys = pairs // num_keys, pairs % num_keys
        places = (rows // num_queries // num_heads, rows // num_queries % num_heads)
        numbers = (*places, rows % num_queries)
        batch, heads, queries = (
            torch.tensor(state.outline.places[axis], dtype=torch.long, device=pairs.device)[place]
            for axis, place in zip(AXES[:3], numbers, strict=True)
        )
        labels = state.outline.labels(edges=range(len(weights)))
        return EdgesResult(labels, batch, heads, queries, keys, weights, state.total)


def _looked_into(
    tile: Tile, groups: Int[Tensor, "groups 4"]
) -> tuple[Float[Tensor, "groups places"], Int[Tensor, "groups places"]]:
    """Return the weights in some groups of columns, 0 beyond the last column, and the columns."""
    columns = groups[:, 3:] * GROUP + torch.arange(GROUP, device=groups.device)
    batch, head, row = groups[:, :3, None].unbind(dim=1)
    beyond = columns >= len(tile.columns)
    columns = columns.masked_fill(beyond, 0)
    return tile.weights[batch, head, row, columns].masked_fill(beyond, 0.0), columns
