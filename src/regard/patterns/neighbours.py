"""Attention along the edges of a graph."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.patterns.integers import RangeExtrema, as_tensor, to_list, whole_numbers
from regard.patterns.pattern import Bools, Covers, GatheredBlocks, Ints, Pattern, Span, codes


@dataclass(frozen=True, eq=False)
class Neighbours(Pattern):
    """A node attends to the nodes that its edges lead to."""

    edges: Int[Tensor, "edges 2"]
    num_nodes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_nodes", int(self.edges.max()) + 1)

    @cached_property
    def _pairs(self) -> Int[Tensor, "edges"]:
        """Each edge once, as query · num_nodes + key, sorted."""
        queries, keys = self.edges.cpu().unbind(1)
        return torch.unique(queries * self.num_nodes + keys)

    @cached_property
    def _row_starts(self) -> Int[Tensor, "nodes_and_1"]:
        """Start of each query's pairs, and the end of the last."""
        nodes = torch.arange(self.num_nodes + 1, device="cpu")
        return torch.searchsorted(self._pairs, nodes * self.num_nodes)

    @cached_property
    def _reach(self) -> RangeExtrema:
        """The smallest and the largest key of each query."""
        nodes = self.num_nodes
        queries, keys = self._pairs // nodes, self._pairs % nodes
        smallest = torch.full((nodes,), nodes, device="cpu")
        largest = torch.full((nodes,), -1, device="cpu")
        return RangeExtrema(
            smallest.scatter_reduce(0, queries, keys, "amin"),
            largest.scatter_reduce(0, queries, keys, "amax"),
        )

    def test(self, batch: Ints, query: Ints, key: Ints) -> Bools:
        known = (query >= 0) & (query < self.num_nodes) & (key < self.num_nodes)
        pairs = self._pairs.to(key.device)
        wanted = query * self.num_nodes + key
        edge = torch.searchsorted(pairs, wanted).clamp_max(len(pairs) - 1)
        return known & (pairs[edge] == wanted)

    def dense(
        self, query_positions: Int[Tensor, "queries"], num_keys: int
    ) -> Bool[Tensor, "batch_or_1 queries keys"]:
        device = query_positions.device
        nodes = torch.zeros(self.num_nodes + 1, num_keys, dtype=torch.bool, device=device)
        queries, keys = self.edges.to(device).unbind(1)
        nodes.view(-1)[queries * num_keys + keys] = True
        # The last row is for positions without a node.
        known = (query_positions >= 0) & (query_positions < self.num_nodes)
        return nodes[torch.where(known, query_positions, self.num_nodes)][None]

    def simplified(self, queries: range, num_keys: int) -> Pattern:
        # Count edges before sorting them: most graphs can't be simplified.
        is_sparse = len(self.edges) < len(queries) * num_keys
        return self if is_sparse else super().simplified(queries, num_keys)

    def cover_spans(self, batch: Ints, query: Span, key: Span) -> Covers:
        first, last = (end.clamp(0, self.num_nodes - 1) for end in query)
        outside = (query.first >= self.num_nodes) | (query.last < 0)
        smallest, largest = self._reach(first, last)
        num_edges = self._row_starts[last + 1] - self._row_starts[first]
        area = (query.last - query.first + 1) * (key.last - key.first + 1)
        return codes(
            none=outside | (largest < key.first) | (smallest > key.last),
            every=(smallest == key.first) & (largest == key.last) & (num_edges == area),
            batch=batch,
        )

    def gathered_blocks(
        self, query_positions: Int[Tensor, "queries"], num_keys: int
    ) -> list[GatheredBlocks]:
        # A query and its neighbours form a class; classes of one size are stacked.
        known = torch.nonzero((query_positions >= 0) & (query_positions < self.num_nodes)).flatten()
        rows = query_positions[known]
        degrees = self._row_starts[rows + 1] - self._row_starts[rows]
        blocks: list[GatheredBlocks] = []
        for degree in to_list(torch.unique(degrees[degrees > 0])):
            chosen = degrees == degree
            edges = self._row_starts[rows[chosen]][:, None] + torch.arange(degree, device="cpu")
            keys = self._pairs[edges] % self.num_nodes
            blocks.append(GatheredBlocks(known[chosen][:, None], keys, 1, None))
        return blocks

    def check(self, batch: int, queries: range, num_keys: int) -> None:
        if self.num_nodes > num_keys:
            raise ValueError(
                f"neighbours: positions must be below the number of keys ({num_keys}), "
                f"got {self.num_nodes - 1}"
            )

    def __repr__(self) -> str:
        return f"neighbours({len(self._pairs)} edges)"


def neighbours(edges: Sequence[tuple[int, int]] | Int[Tensor, "edges 2"]) -> Pattern:
    """Let the nodes of a graph attend along its edges: edge (i, j) lets i attend to j.

    >>> print(neighbours([(0, 1), (0, 3), (2, 0), (3, 3)]).draw(4))
    · ■ · ■
    · · · ·
    ■ · · ·
    · · · ■

    Args:
        edges: pairs of positions (query, key), [edges, 2]. Repeated edges count once; there are no
            implicit self-loops.
    """
    values = whole_numbers(edges)
    if values is None or values.dim() != 2 or values.shape[1] != 2 or not len(values):
        got = as_tensor(edges)
        raise ValueError(
            "neighbours: edges must be at least one pair of positions, [edges, 2], "
            f"got shape {list(got.shape)} of {got.dtype}"
        )
    if int(values.min()) < 0:
        raise ValueError(f"neighbours: positions must be at least 0, got {int(values.min())}")
    return Neighbours(values)
