"""One call of attention in a recording."""

from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
import zarr
from jaxtyping import Float, Int
from torch import Tensor

from regard.matrix import AttentionMatrix
from regard.patterns import Pattern
from regard.patterns.cover import Cover, Span
from regard.positions import Bias
from regard.recording import arrays
from regard.recording.bias_data import bias_from_data
from regard.recording.errors import RecordingError
from regard.recording.pattern_data import pattern_from_data
from regard.recording.schema import TILE, CallFacts


class RecordedCall:
    """A call of attention, as `regard.watch` saw it, on disk.

    It can be drawn like one that was just seen: `regard.page`, figures and measures take it.

    Args:
        facts: what the recording says of it.
        group: where it is stored.
    """

    def __init__(self, facts: CallFacts, group: zarr.Group) -> None:
        self.facts, self._group = facts, group

    @property
    def index(self) -> int:
        """Its number in the recording."""
        return self.facts.index

    @property
    def module(self) -> str:
        """The path of the module that made it."""
        return self.facts.module

    @property
    def looks(self) -> Literal["self", "cross"]:
        """Whether it looked at its own text or at another."""
        return self.facts.looks

    @property
    def layer(self) -> str:
        """The number of its layer, as the model counts."""
        return self.facts.layer

    @property
    def group(self) -> str:
        """The stack that it belongs to, where a model has several."""
        return self.facts.group

    @property
    def heads(self) -> int:
        """The number of query heads."""
        return self.facts.heads

    @property
    def queries(self) -> int:
        """The number of queries."""
        return self.facts.queries

    @property
    def keys(self) -> int:
        """The number of keys."""
        return self.facts.keys

    @property
    def query_text(self) -> int:
        """The number of the text that it looks from."""
        return self.facts.query_text

    @property
    def key_text(self) -> int:
        """The number of the text that it looks at."""
        return self.facts.key_text

    @property
    def max_zoom(self) -> int:
        """The level of the map at which a cell is one pair."""
        return self.facts.max_zoom

    @property
    def measures(self) -> dict[str, list[float | None]]:
        """A number for each head, by the name of the measure; None where it has no meaning."""
        return self.facts.measures

    @cached_property
    def is_causal(self) -> bool:
        """Whether no tile of the map has anything in it whose keys all come after its queries."""
        if self.looks == "cross":
            return False
        ends = torch.arange(TILE, self.queries + TILE, TILE)
        rows = self.span_of(range(self.queries), TILE)
        inside = ends < self.keys
        found = self.pattern.cover_spans(
            torch.zeros(int(inside.sum()), dtype=torch.long),
            Span(*(end[inside] for end in rows)),
            Span(ends[inside], torch.full_like(ends[inside], self.keys - 1)),
        )
        return bool((found == Cover.NONE).all())

    @cached_property
    def pattern(self) -> Pattern:
        """Who may look at whom."""
        return pattern_from_data(self.facts.pattern, self._tensor)

    @cached_property
    def bias(self) -> Bias | None:
        """What order does to a score."""
        return None if self.facts.bias is None else bias_from_data(self.facts.bias, self._tensor)

    @cached_property
    def _positions(self) -> Int[Tensor, "queries"] | None:
        return None if self.facts.first_position is not None else self._tensor("positions")

    def positions_of(self, queries: range) -> Int[Tensor, "some_queries"]:
        """Return where queries stand among the keys."""
        if self._positions is not None:
            return self._positions[queries.start : queries.stop]
        first = self.facts.first_position or 0
        return torch.arange(first + queries.start, first + queries.stop)

    def span_of(self, queries: range, height: int) -> Span:
        """Return where each so many queries stand: the lowest and the highest position."""
        starts = torch.arange(0, len(queries), height)
        stops = (starts + height).clamp_max(len(queries))
        positions = self.positions_of(queries)
        if self._positions is None:
            return Span(positions[starts], positions[stops - 1])
        parts = [positions[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
        ends = [(part.min(), part.max()) for part in parts]
        return Span(torch.stack([low for low, _ in ends]), torch.stack([high for _, high in ends]))

    @property
    def matrix(self) -> AttentionMatrix:
        """The attention matrix, [1, heads, queries, keys], not computed.

        Its queries and keys are read whole. For a tile or some rows of a long text, the recording
        reads what these need.
        """
        known = self.facts.stored == "scores"
        return self.matrix_with(self._tensor("lse")[None] if known else None)

    def matrix_with(self, lse: Float[Tensor, "1 heads queries"] | None) -> AttentionMatrix:
        """Return the attention matrix, with the log-sum-exp of its rows if that is known."""
        facts, first = self.facts, self.facts.first_position
        where: Any = {
            "pattern": self.pattern,
            "positions": self._positions if first is None else first,
        }
        if facts.stored == "weights":
            weights = self._stored("weights", ...)[None]
            return AttentionMatrix.from_weights(weights, check=False, **where)
        return AttentionMatrix(
            self._stored("query", ...)[None],
            self._stored("key", ...)[None],
            bias=self.bias,
            scale=facts.scale,
            lse=lse,
            sinks=None if facts.sinks is None else torch.tensor(facts.sinks),
            **where,
        )

    def query_of(self, head: int, queries: range) -> Float[Tensor, "queries key_dim"]:
        """Read some queries of a head."""
        return self._stored("query", (head, _slice(queries)))

    def key_of(self, key_head: int, keys: range) -> Float[Tensor, "keys key_dim"]:
        """Read some keys of a key head."""
        return self._stored("key", (key_head, _slice(keys)))

    def lse_of(self, head: int, queries: range) -> Float[Tensor, "queries"]:
        """Read the logarithm of what some rows of a head are divided by."""
        return self._tensor("lse", (head, _slice(queries)))

    def weights_of(self, head: int, queries: range, keys: range) -> Float[Tensor, "queries keys"]:
        """Read weights of a head, where these are what is stored."""
        return self._stored("weights", (head, _slice(queries), _slice(keys)))

    def array(self, name: str) -> "zarr.Array[Any]":
        """Return an array.

        Raises:
            RecordingError: there is none.
        """
        try:
            found = self._group[name]
        except KeyError:
            found = None
        if not isinstance(found, zarr.Array):
            raise RecordingError(
                f"{self._group.path} is damaged: it has no {name}; record it again"
            )
        return found

    def _stored(self, name: str, where: Any) -> Tensor:
        return arrays.as_tensor(arrays.read(self.array(name), where), self.facts.dtype)

    def _tensor(self, name: str, where: Any = ...) -> Tensor:
        return arrays.as_tensor(arrays.read(self.array(name), where))

    def check(self) -> None:
        """Make sure that all arrays are there, and have the sizes that the facts say.

        Raises:
            RecordingError: they don't.
        """
        facts = self.facts
        heads, rows, thumb = facts.heads, facts.rows, facts.thumb
        stored = arrays.stored_dtype(facts.dtype)
        wanted: dict[str, tuple[tuple[int, ...], Any]] = {
            "entropy": ((rows, facts.queries), np.dtype("float32")),
            "received": ((rows, facts.keys), np.dtype("float32")),
            "thumbs": ((heads, *thumb), np.dtype("float32")),
        }
        if facts.stored == "scores":
            wanted["query"] = ((heads, facts.queries, facts.key_dim), stored)
            wanted["key"] = ((facts.key_heads, facts.keys, facts.key_dim), stored)
            lse = np.dtype("float64" if facts.dtype == "float64" else "float32")
            wanted["lse"] = ((heads, facts.queries), lse)
        else:
            wanted["weights"] = ((heads, facts.queries, facts.keys), stored)
        if facts.first_position is None:
            wanted["positions"] = ((facts.queries,), np.dtype("int64"))
        for cell in facts.cells:
            sizes = (rows, -(-facts.queries // cell), -(-facts.keys // cell))
            wanted |= {f"{pool}/{cell}": (sizes, np.dtype("float32")) for pool in ("mean", "max")}
        for name, (shape, dtype) in wanted.items():
            array = self.array(name)
            if array.shape != shape or array.dtype != dtype:
                raise RecordingError(
                    f"{self._group.path}/{name} must be {dtype} of shape {list(shape)}, got "
                    f"{array.dtype} of shape {list(array.shape)}: record it again"
                )
        if facts.heads % facts.key_heads:
            raise RecordingError(
                f"{self._group.path}: {facts.heads} heads can't share {facts.key_heads} key heads"
            )

    def __str__(self) -> str:
        return f"call {self.index} ({self.module or 'the model'})"

    def __repr__(self) -> str:
        return (
            f"RecordedCall({self.index}, {self.module!r}, {self.looks}, {self.heads} heads, "
            f"{self.queries} × {self.keys})"
        )


def _slice(places: range) -> slice:
    return slice(places.start, places.stop)
