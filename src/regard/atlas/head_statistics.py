"""The measures of the atlas, as sums over the rows of a head."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.matrix.distance import sums_by_offset
from regard.matrix.entropy import effective_keys
from regard.matrix.reduction import Result, Sums, merged, zeros
from regard.matrix.source import Fact
from regard.matrix.tiles import Tile
from regard.matrix.view import View

REACH = 16
"""Largest offset that is counted by itself, on either side."""

SINK = 0.3
"""A key with a larger mean weight, over the rows that may attend to it, is a sink."""

SINK_LOOKERS = 16
"""Minimum rows that may attend to a sink."""

_EXACT = 64
_PER_OCTAVE = 8


def distance_edges(longest: int) -> list[int]:
    """Return the edges of bins of distances: each distance up to 64, then eight bins per octave."""
    edges = list(range(min(_EXACT, longest + 1)))
    step = 0
    while (edge := round(_EXACT * 2 ** (step / _PER_OCTAVE))) <= longest:
        edges.append(edge)
        step += 1
    return edges


@dataclass(frozen=True, eq=False)
class Kinds:
    """Kinds of the tokens of some sequences of one length.

    Args:
        ids: the tokens.
        separators: whether each is a special token or the end of a line.
        punctuation: whether each is punctuation.
    """

    ids: Int[Tensor, "batch tokens"]
    separators: Bool[Tensor, "batch tokens"]
    punctuation: Bool[Tensor, "batch tokens"]
    _places: dict[Hashable, list[list[Tensor]]] = field(default_factory=dict, init=False)

    @cached_property
    def same(self) -> Int[Tensor, "3 pairs"]:
        """Sequence, query and key of each token and each earlier copy of it, by query."""
        alike = (self.ids[:, :, None] == self.ids[:, None, :]).tril(-1)
        return alike.nonzero().T

    @cached_property
    def after(self) -> Int[Tensor, "3 pairs"]:
        """The same, of each token and the token after an earlier copy of it."""
        batch, query, key = self.same
        before = key + 1 < query
        return torch.stack([batch, query, key + 1])[:, before]

    def pairs_in(self, tile: Tile) -> list[list[Tensor]]:
        """Return the pairs of `same` and `after` in a tile, for each of its sequences.

        Cached, as all layers of a model have the same tiles.

        Returns:
            row · columns + column of each, [pairs].
        """
        if tile.place not in self._places:
            self._places[tile.place] = [
                [_places(tile, pairs[1:, pairs[0] == number]) for pairs in (self.same, self.after)]
                for number in range(tile.batch.start, tile.batch.stop)
            ]
        return self._places[tile.place]

    def count(self, pairs: Int[Tensor, "3 pairs"]) -> int:
        """Return the number of different queries of pairs."""
        return len((pairs[0] * self.ids.shape[1] + pairs[1]).unique_consecutive())


@dataclass(frozen=True, eq=False, repr=False)
class HabitsResult(Result):
    """Sums over all rows of some sequences.

    Attributes:
        entropy: the entropy of the rows, in nats.
        effective: their effective number of keys, exp(entropy).
        near: weight at each offset, key − query, from −16 to 16.
        far: weight in each bin of distances.
        distance: weight times distance.
        mass: all weight.
        first: weight on the first key, without the first row.
        separators: weight on separators.
        punctuation: weight on punctuation.
        same: weight on earlier copies of the query's token.
        after: weight on tokens just after earlier copies.
        first_sinks: number of sequences whose first key is a sink.
        sinks: number of sinks.
        top: the largest mean weight of a key, summed over the sequences.
    """

    entropy: Float[Tensor, "heads"]
    effective: Float[Tensor, "heads"]
    near: Float[Tensor, "heads offsets"]
    far: Float[Tensor, "heads bins"]
    distance: Float[Tensor, "heads"]
    mass: Float[Tensor, "heads"]
    first: Float[Tensor, "heads"]
    separators: Float[Tensor, "heads"]
    punctuation: Float[Tensor, "heads"]
    same: Float[Tensor, "heads"]
    after: Float[Tensor, "heads"]
    first_sinks: Float[Tensor, "heads"]
    sinks: Float[Tensor, "heads"]
    top: Float[Tensor, "heads"]


@dataclass(frozen=True, eq=False)
class Habits:
    """The reduction that computes `HabitsResult`, for sequences of one length.

    Args:
        kinds: kinds of the tokens, of queries and keys alike.
    """

    kinds: Kinds

    facts: ClassVar[tuple[Fact, ...]] = ("entropy", "sums")
    merge = staticmethod(merged)

    def start(self, view: View) -> Sums:
        length = view.sizes[3]
        tensors = {name: zeros(view) for name in ("entropy", "effective", "own", "same", "after")}
        tensors |= {name: zeros(view, length) for name in ("received", "lookers")}
        tensors["offsets"] = zeros(view, 2 * length - 1)
        return Sums(view.outline, tensors)

    def update(self, state: Sums, tile: Tile) -> Sums:
        tile.heads_of(state["entropy"]).add_(tile.entropy.sum(dim=2))
        tile.heads_of(state["effective"]).add_(
            effective_keys(tile.entropy, tile.row_sums).sum(dim=2)
        )
        tile.add_to_columns(state["received"], tile.column_sums)
        tile.add_to_columns(state["lookers"], tile.num_allowed_queries)
        offsets, sums = sums_by_offset(tile)
        middle = state["received"].shape[2] - 1
        by_offset = tile.heads_of(state["offsets"])
        by_offset.index_add_(2, offsets + middle, sums.to(by_offset.dtype))
        if int(tile.query_positions[0]) == 0 and int(tile.key_positions[0]) == 0:
            tile.heads_of(state["own"]).add_(tile.weights[:, :, 0, 0])
        flat = tile.weights.flatten(2)
        for number, places in enumerate(self.kinds.pairs_in(tile)):
            for name, some in zip(("same", "after"), places, strict=True):
                so_far = tile.heads_of(state[name])[number]
                so_far.add_(flat[number].index_select(1, some).sum(dim=1, dtype=so_far.dtype))
        return state

    def finish(self, state: Sums) -> HabitsResult:
        received, lookers, by_offset = (state[name] for name in ("received", "lookers", "offsets"))
        length = received.shape[2]
        offset = torch.arange(1 - length, length, device=by_offset.device)
        mass = by_offset.sum(dim=0)
        mean = (received / lookers).masked_fill(lookers < SINK_LOOKERS, 0.0)
        near = torch.zeros(len(mass), 2 * REACH + 1, dtype=mass.dtype, device=mass.device)
        close = offset.abs() <= REACH
        near[:, offset[close] + REACH] = mass[:, close]
        edges = torch.tensor(distance_edges(length - 1), device=mass.device)
        bins = torch.searchsorted(edges, offset.abs(), right=True) - 1
        kinds = torch.stack([self.kinds.separators, self.kinds.punctuation], dim=1).to(received)
        separators, punctuation = torch.einsum("bhk,bgk->gh", received, kinds)
        return HabitsResult(
            state.outline.labels(offsets=range(-REACH, REACH + 1), bins=edges.tolist()),
            entropy=state["entropy"].sum(dim=0),
            effective=state["effective"].sum(dim=0),
            near=near,
            far=mass.new_zeros(len(mass), len(edges)).index_add_(1, bins, mass),
            distance=(mass * offset.abs()).sum(dim=1),
            mass=mass.sum(dim=1),
            first=(received[..., 0] - state["own"]).sum(dim=0),
            separators=separators,
            punctuation=punctuation,
            same=state["same"].sum(dim=0),
            after=state["after"].sum(dim=0),
            first_sinks=(mean[..., 0] > SINK).sum(dim=0).to(mass.dtype),
            sinks=(mean > SINK).sum(dim=(0, 2)).to(mass.dtype),
            top=mean.amax(dim=2).sum(dim=0),
        )


def _places(tile: Tile, pairs: Int[Tensor, "2 pairs"]) -> Int[Tensor, "pairs_inside"]:
    """Return the pairs that are in a tile, as row · columns + column."""
    keys = tile.key_positions
    query, key = pairs.to(keys.device)
    row = query - tile.queries.start
    column = torch.searchsorted(keys, key).clamp_max(len(keys) - 1)
    inside = (row >= 0) & (row < tile.shape[2]) & (keys[column] == key)
    return (row * len(keys) + column)[inside]
