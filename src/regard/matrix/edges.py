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
        places: batch, head and query of each edge, counted in the view, and its key, [edges, 4].
        weights: [edges], in descending order.
        total: how many there are, also those that were not kept.
        seen: how often each row was seen, [batch, heads, queries].
    """

    outline: Outline
    places: Tensor
    weights: Tensor
    total: int
    seen: Tensor


@dataclass(frozen=True)
class Edges:
    """The pairs whose weight reaches a threshold: the edges of the attention graph.

    Args:
        threshold: the least weight of an edge, above 0. A row has up to 1 / threshold edges.
        limit: how many edges to keep, the strongest of all heads.

    >>> import torch, regard
    >>> x = torch.eye(3)[None, None] * 9
    >>> found = regard.AttentionMatrix(x, x)[0, 0].edges(threshold=0.1)
    >>> found.queries, found.keys, found.total
    (tensor([0, 1, 2]), tensor([0, 1, 2]), 3)
    """

    threshold: float
    limit: int = 100_000

    facts: ClassVar[tuple[Fact, ...]] = ("peaks",)

    def __post_init__(self) -> None:
        if not self.threshold > 0.0:
            raise ValueError(f"Edges: threshold must be above 0, got {self.threshold}")
        if self.limit < 0:
            raise ValueError(f"Edges: limit must be at least 0, got {self.limit}")

    def start(self, view: View) -> EdgesState:
        device = view.source.device
        places = torch.zeros(0, 4, dtype=torch.long, device=device)
        weights = torch.zeros(0, dtype=view.source.dtype, device=device)
        seen = zeros(view, view.sizes[2], dtype=torch.uint8)
        return EdgesState(view.outline, places, weights, 0, seen)

    def update(self, state: EdgesState, tile: Tile) -> EdgesState:
        # Few groups of columns hold an edge; only those are looked into.
        groups = (tile.peaks >= self.threshold).nonzero()
        columns = groups[:, 3:] * GROUP + torch.arange(GROUP, device=groups.device)
        batch, head, row = groups[:, :3, None].unbind(dim=1)
        candidates = tile.weights[batch, head, row, columns.clamp_max(len(tile.columns) - 1)]
        edge, inside = ((candidates >= self.threshold) & (columns < len(tile.columns))).nonzero(
            as_tuple=True
        )
        corner = (tile.batch.start, tile.heads.start, tile.queries.start)
        where = groups[edge, :3] + torch.tensor(corner, device=groups.device)
        keys = tile.key_positions[columns[edge, inside]]
        places = torch.cat([where, keys[:, None]], dim=1)
        tile.rows_of(state.seen).add_(1)
        return self._joined(state, places, candidates[edge, inside], len(edge), state.seen)

    def merge(self, first: EdgesState, second: EdgesState) -> EdgesState:
        seen = merged_rows(first.outline, first.seen, second.outline, second.seen)
        return self._joined(first, second.places, second.weights, second.total, seen)

    def _joined(
        self, state: EdgesState, places: Tensor, weights: Tensor, total: int, seen: Tensor
    ) -> EdgesState:
        device = state.weights.device
        places = torch.cat([state.places, places.to(device)])
        weights = torch.cat([state.weights, weights.to(device)])
        # Equal weights are in the order of the matrix, so that the order of merging is no matter.
        for axis in (3, 2, 1, 0):
            order = places[:, axis].argsort(stable=True)
            places, weights = places[order], weights[order]
        order = weights.argsort(descending=True, stable=True)[: self.limit]
        total += state.total
        return EdgesState(state.outline, places[order], weights[order], total, seen)

    def finish(self, state: EdgesState) -> EdgesResult:
        device = state.places.device
        numbers, keys = state.places[:, :3], state.places[:, 3]
        batch, heads, queries = (
            torch.tensor(state.outline.places[axis], dtype=torch.long, device=device)[place]
            for axis, place in zip(AXES[:3], numbers.unbind(dim=1), strict=True)
        )
        labels = state.outline.labels(edges=range(len(state.weights)))
        return EdgesResult(labels, batch, heads, queries, keys, state.weights, state.total)
