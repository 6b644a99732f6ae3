"""The matrix as a graph: who looks strongly at whom."""

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
"""A tile in which all groups of columns hold an edge is looked into in so many parts."""


@dataclass(frozen=True, eq=False, repr=False)
class EdgesResult(Result):
    """The strongest pairs, the strongest first.

    Attributes:
        batch: the sequence of each.
        heads: its head.
        queries: its query.
        keys: its key.
        weights: its weight.
        total: how many pairs reach the threshold, also those beyond the limit.
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
        outline: what it is a state of.
        pairs: the number of each edge among all pairs of the matrix, row by row, [edges] in parts.
        weights: their weights, in the same parts.
        total: how many there are, also those that were not kept.
        seen: how often each row was seen, [batch, heads, queries].
    """

    outline: Outline
    pairs: list[Tensor]
    weights: list[Tensor]
    total: int
    seen: Tensor

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The sizes by which pairs are numbered: keys are counted in the source."""
        keys = self.outline.places["keys"]
        return *self.outline.sizes[:3], int(keys[-1]) + 1 if keys else 1

    def numbers(
        self, tile: Tile, rows: Int[Tensor, "pairs 3"], columns: Int[Tensor, "pairs"]
    ) -> Int[Tensor, "pairs"]:
        """Return the numbers of pairs, from batch, head and row in a tile and their columns."""
        corner = (tile.batch.start, tile.heads.start, tile.queries.start)
        batch, head, query = (rows + torch.tensor(corner, device=rows.device)).unbind(dim=1)
        _, num_heads, num_queries, num_keys = self.sizes
        row = (batch * num_heads + head) * num_queries + query
        return row * num_keys + tile.key_positions[columns]

    def cut(self, limit: int) -> None:
        """Leave the strongest edges only, as one part, in order.

        Equal weights are in the order of the matrix, so that the order of merging is no matter.
        """
        pairs, order = torch.cat(self.pairs).sort()
        weights = torch.cat(self.weights)[order]
        order = weights.abs().sort(descending=True, stable=True).indices[:limit]
        self.pairs, self.weights = [pairs[order]], [weights[order]]


@dataclass(frozen=True)
class Edges:
    """The pairs whose weight reaches a threshold: the edges of the attention graph.

    Effects reach it by their size, whatever their sign.

    Args:
        threshold: the least weight of an edge, above 0. A row of weights has up to 1 / threshold
            edges.
        limit: how many edges to keep, the strongest of all heads. Memory grows with it and not with
            the number of edges, of which the result says the `total`.

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
        # Few groups of columns hold an edge; only those are looked into. Where many do, a part of
        # them at a time takes less memory than the tile itself.
        groups = (tile.group_max >= self.threshold).nonzero()
        few = _PARTS * len(groups) < tile.group_max.numel()
        sizes = _looked_into(tile, groups)[0].abs() if few else tile.magnitudes
        state.total += int((sizes >= self.threshold).count_nonzero())
        if self.limit:
            for some in groups.split(max(1, tile.weights.numel() // GROUP // _PARTS)):
                self._add(state, tile, some)
        return state

    def _add(self, state: EdgesState, tile: Tile, groups: Int[Tensor, "groups 4"]) -> None:
        """Add the edges in some groups of columns of a tile: batch, head, row and group."""
        least = self.threshold
        if len(state.pairs[0]) >= self.limit:
            # What comes after the last that is kept can't be among the strongest any more.
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
