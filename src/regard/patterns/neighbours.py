"""Looking along the edges of a graph."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Int, Int8
from torch import Tensor

from regard.patterns.cover import Span, codes
from regard.patterns.extremes import Extremes
from regard.patterns.pattern import Lattice, Pattern
from regard.patterns.whole import as_tensor, whole_numbers


@dataclass(frozen=True, eq=False)
class Neighbours(Pattern):
    """A node may look at the nodes that an edge leads to."""

    edges: Int[Tensor, "edges 2"]
    num_nodes: int = field(init=False)
    _pairs: Tensor = field(init=False, repr=False)
    _row_starts: Tensor = field(init=False, repr=False)
    _reach: Extremes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # The edges are sorted by query, then key: a pair is one number, a row one stretch of them.
        edges = torch.unique(self.edges.cpu(), dim=0)
        num_nodes = int(edges.max()) + 1
        queries, keys = edges.unbind(1)
        starts = torch.searchsorted(queries.contiguous(), torch.arange(num_nodes + 1, device="cpu"))
        smallest = torch.full((num_nodes,), num_nodes, device="cpu").scatter_reduce(
            0, queries, keys, "amin"
        )
        largest = torch.full((num_nodes,), -1, device="cpu").scatter_reduce(
            0, queries, keys, "amax"
        )
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "num_nodes", num_nodes)
        object.__setattr__(self, "_pairs", queries * num_nodes + keys)
        object.__setattr__(self, "_row_starts", starts)
        object.__setattr__(self, "_reach", Extremes(smallest, largest))

    def test(
        self, batch: Int[Tensor, "..."], query: Int[Tensor, "..."], key: Int[Tensor, "..."]
    ) -> Bool[Tensor, "..."]:
        known = (query >= 0) & (query < self.num_nodes) & (key < self.num_nodes)
        pairs = self._pairs.to(key.device)
        wanted = query * self.num_nodes + key
        place = torch.searchsorted(pairs, wanted).clamp_max(len(pairs) - 1)
        return known & (pairs[place] == wanted)

    def cover_spans(self, batch: Int[Tensor, "..."], query: Span, key: Span) -> Int8[Tensor, "..."]:
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

    def lattices(self, query_positions: Int[Tensor, "queries"], num_keys: int) -> list[Lattice]:
        # One query and its neighbours make a class; classes of one size are stacked.
        known = torch.nonzero((query_positions >= 0) & (query_positions < self.num_nodes)).flatten()
        rows = query_positions[known]
        degrees = self._row_starts[rows + 1] - self._row_starts[rows]
        found: list[Lattice] = []
        for degree in torch.unique(degrees[degrees > 0]).tolist():
            chosen = degrees == degree
            places = self._row_starts[rows[chosen]][:, None] + torch.arange(degree, device="cpu")
            keys = self.edges[:, 1][places]
            found.append(Lattice(known[chosen][:, None], keys, 1, None))
        return found

    def check(self, batch: int, queries: range, num_keys: int) -> None:
        if self.num_nodes > num_keys:
            raise ValueError(
                f"neighbours: edges must name positions below the number of keys ({num_keys}), "
                f"got {self.num_nodes - 1}"
            )

    def __repr__(self) -> str:
        return f"neighbours({len(self.edges)} edges)"


def neighbours(edges: Sequence[tuple[int, int]] | Int[Tensor, "edges 2"]) -> Pattern:
    """Let the nodes of a graph look along its edges: an edge (i, j) lets i look at j.

    >>> print(neighbours([(0, 1), (0, 3), (2, 0), (3, 3)]).draw(4))
    · ■ · ■
    · · · ·
    ■ · · ·
    · · · ■

    Args:
        edges: pairs of positions (who looks, at whom), [edges, 2]. Repeated edges count once; a
            node looks at itself only where an edge says so.
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
