"""The strongest keys of each row, hits among them, and the strongest pairs of all rows.

They are few, and a search would visit every number. So while a tile is computed, only the maximum
of each group of G = 64 neighbouring columns is kept, and whole groups are skipped:

    row          .0 .2 .0 │ .0 .0 .0 │ .4 .3 .0 │ .0 .1 .0     G = 3, for the drawing
    maxima          .2    │    .0    │    .4    │    .1
    k = 2 groups    ✓     │          │    ✓     │
    candidates   .0 .2 .0            │ .4 .3 .0                k · G numbers: .4 and .3 are largest

Exact: the k largest maxima are k numbers of the row, so a number in another group, which does not
exceed its own maximum, is exceeded by or equal to k others. For edges, a group whose maximum is
below the threshold has none.

Cost of a row of n keys, after its maxima: n/G comparisons, then k · G, instead of n. Where that is
not less (n/G ≤ 2k) all numbers are compared. Effects are compared by absolute value.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.matrix.arithmetic import GROUP
from regard.matrix.reduction import Result, Sums, merged, merged_rows, rows_of_zeros, zeros
from regard.matrix.source import Fact
from regard.matrix.tiles import Tile
from regard.matrix.view import AXES, Outline, View
from regard.patterns import Pattern

_PARTS = 8
"""Parts of a tile if all of its groups of columns have edges."""


@dataclass(frozen=True, eq=False, repr=False)
class TopKeysResult(Result):
    """The strongest keys of each row, in descending order; effects by absolute value.

    Attributes:
        keys: their indices; −1 without further keys of non-zero weight.
        weights: their weights; 0 for −1.
    """

    keys: Int[Tensor, "*heads queries ranks"]
    weights: Float[Tensor, "*heads queries ranks"]


@dataclass(frozen=True)
class TopKeys:
    """The k strongest keys of each row; the order of equal weights is undefined.

    Args:
        count: number of keys per row, at least 1.

    >>> import torch, regard
    >>> x = torch.eye(3)[None, None] * 9
    >>> regard.AttentionMatrix(x, x, pattern=regard.causal())[0, 0].top(1).keys
    tensor([[0],
            [1],
            [2]])
    """

    count: int

    facts: ClassVar[tuple[Fact, ...]] = ("group_max",)
    merge = staticmethod(merged)

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"TopKeys: count must be at least 1, got {self.count}")

    def start(self, view: View) -> Sums:
        state = rows_of_zeros(view, weights=(self.count,))
        # Counted from 1, so that 0 is none and states can be added.
        state.tensors["numbers"] = zeros(view, view.sizes[2], self.count, dtype=torch.long)
        return state

    def update(self, state: Sums, tile: Tile) -> Sums:
        weights, columns = strongest(tile, min(self.count, len(tile.columns)))
        numbers = (tile.key_positions[columns] + 1).masked_fill(weights == 0.0, 0)
        tile.rows_of(state["weights"])[..., : weights.shape[-1]].add_(weights)
        tile.rows_of(state["numbers"])[..., : weights.shape[-1]].add_(numbers)
        tile.rows_of(state["seen"]).add_(1)
        return state

    def finish(self, state: Sums) -> TopKeysResult:
        outline = state.outline
        labels = outline.labels(ranks=range(1, self.count + 1))
        keys, weights = outline.trim(state["numbers"] - 1), outline.trim(state["weights"])
        return TopKeysResult(labels, keys, weights)


def strongest(
    tile: Tile, count: int
) -> tuple[
    Float[Tensor, "batch heads rows strongest"],
    Int[Tensor, "batch heads rows strongest"],
]:
    """Return the weights of the largest magnitude of each row, and their columns in the tile."""
    if tile.group_max.shape[3] <= 2 * count:
        columns = tile.magnitudes.topk(count, dim=3).indices
        return tile.weights_at(columns), columns
    # The k largest numbers are in the k groups with the largest maxima; see above.
    groups = tile.group_max.topk(count, dim=3).indices
    candidates = tile.weights_of_groups(groups)
    sizes = candidates.abs() if tile.view.source.signed else candidates
    places = sizes.topk(count, dim=3).indices
    columns = groups.gather(3, places // GROUP) * GROUP + places % GROUP
    # A column beyond the last has 0, and so is only among the strongest where others have it too.
    return candidates.gather(3, places), columns.clamp_max(len(tile.columns) - 1)


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
        return HitsResult(
            outline.labels(), outline.trim(state["hits"]), outline.trim(state["rows"])
        )


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
    """The edges of the tiles so far.

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
        sizes = _weights_in(tile, groups)[0].abs() if few else tile.magnitudes
        state.total += int((sizes >= self.threshold).count_nonzero())
        if self.limit:
            for part in groups.split(max(1, tile.shape.numel() // GROUP // _PARTS)):
                self._add(state, tile, part)
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
        weights, columns = _weights_in(tile, groups)
        edge, inside = (weights.abs() >= least).nonzero(as_tuple=True)
        state.pairs.append(state.numbers(tile, groups[edge, :3], columns[edge, inside]))
        state.weights.append(weights[edge, inside])
        if sum(map(len, state.pairs)) >= 2 * self.limit:
            state.cut(self.limit)

    def merge(self, first: EdgesState, second: EdgesState) -> EdgesState:
        seen = merged_rows(first.outline, first.seen, second.outline, second.seen)
        device = first.seen.device
        pairs = [*first.pairs, *(part.to(device) for part in second.pairs)]
        weights = [*first.weights, *(part.to(device) for part in second.weights)]
        state = EdgesState(first.outline, pairs, weights, first.total + second.total, seen)
        state.cut(self.limit)
        return state

    def finish(self, state: EdgesState) -> EdgesResult:
        state.cut(self.limit)
        (pairs,), (weights,) = state.pairs, state.weights
        _, num_heads, num_queries, num_keys = state.sizes
        rows, keys = pairs // num_keys, pairs % num_keys
        matrices, rows = rows // num_queries, rows % num_queries
        numbers = (matrices // num_heads, matrices % num_heads, rows)
        batch, heads, queries = (
            torch.tensor(state.outline.places[axis], dtype=torch.long, device=pairs.device)[number]
            for axis, number in zip(AXES[:3], numbers, strict=True)
        )
        labels = state.outline.labels(edges=range(len(weights)))
        return EdgesResult(labels, batch, heads, queries, keys, weights, state.total)


def _weights_in(
    tile: Tile, groups: Int[Tensor, "groups 4"]
) -> tuple[Float[Tensor, "groups places"], Int[Tensor, "groups places"]]:
    """Return the weights in some groups of columns, 0 beyond the last column, and the columns."""
    columns = groups[:, 3:] * GROUP + torch.arange(GROUP, device=groups.device)
    batch, head, row = groups[:, :3, None].unbind(dim=1)
    beyond = columns >= len(tile.columns)
    columns = columns.masked_fill(beyond, 0)
    return tile.weights[batch, head, row, columns].masked_fill(beyond, 0.0), columns
