"""The arrays of a recorded call, and the call that reads them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from jaxtyping import Int8
from torch import Tensor

from regard.attention.call import Attention, Index, span_of
from regard.calls.call import AttentionCall, layer_index
from regard.matrix.derived import Effects
from regard.matrix.scores import Scores
from regard.matrix.source import as_tensor
from regard.matrix.view import View
from regard.matrix.weights import Weights
from regard.patterns.pattern import Cover, Pattern, Span
from regard.positions import Bias
from regard.recording import arrays
from regard.recording.arrays import StoredArray
from regard.recording.bias_data import bias_from_data, check_bias
from regard.recording.errors import RecordingError
from regard.recording.pattern_data import pattern_from_data
from regard.recording.schema import MOST_POSITION, TILE, CallFacts

_CACHED_BLOCKS = 128
"""Number of cached chunks of queries and keys: 32 MB for float32 and key_dim 64."""

_CACHED_BYTES = 2**22
"""Larger chunks are not cached."""


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """An array of a recording as a tensor with a batch axis of size 1; see `LazyTensor`.

    Attributes:
        array: [heads, sequence, ...].
        dtype_name: the dtype of the tensor.
    """

    array: StoredArray
    dtype_name: str

    @property
    def shape(self) -> tuple[int, ...]:
        return (1, *self.array.shape)

    @property
    def dtype(self) -> torch.dtype:
        return arrays.DTYPES[self.dtype_name]

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def read(self, *where: Index) -> Tensor:
        """Read rows of heads, or rectangles, from the chunks that they need."""
        batch, heads, rows, *keys = where
        if keys:
            places = tuple(np.asarray(as_tensor(index)) for index in where[1:])
            values = self.array.read(*places)
            return arrays.as_tensor(values, self.dtype_name)[None][: len(batch)]
        spec = self.array.spec
        block = _cached_block if spec.chunk_bytes <= _CACHED_BYTES else _block
        found = torch.empty(1, len(heads), len(rows), *self.array.shape[2:], dtype=self.dtype)
        for number, chosen, places in _in_blocks(rows, spec.chunks[1]):
            for place, head in enumerate(as_tensor(heads).tolist()):
                found[0, place, chosen] = block(self, head, number)[places]
        return found[: len(batch)]

    def modified(self) -> bool:
        return False


def _in_blocks(rows: Index, height: int) -> Iterator[tuple[int, slice | Tensor, slice | Tensor]]:
    """Yield block numbers, the rows that are in each, and their offsets in the block."""
    if isinstance(rows, range) and rows.step == 1:
        for number in range(rows.start // height, -(-rows.stop // height)):
            start = max(rows.start, number * height)
            stop = min(rows.stop, (number + 1) * height)
            chosen = slice(start - rows.start, stop - rows.start)
            yield number, chosen, slice(start - number * height, stop - number * height)
        return
    index = as_tensor(rows)
    for number in torch.unique(index // height).tolist():
        among = index // height == number
        yield number, among, index[among] - number * height


def _block(tensor: StoredTensor, head: int, number: int) -> Tensor:
    """Read a chunk of one head."""
    height = tensor.array.spec.chunks[1]
    values = tensor.array.read(head, slice(number * height, (number + 1) * height))
    return arrays.as_tensor(values, tensor.dtype_name)


_cached_block = lru_cache(_CACHED_BLOCKS)(_block)


class CallArrays:
    """A recorded call.

    Args:
        facts: its metadata.
        stored: its arrays, by name.
    """

    def __init__(self, facts: CallFacts, stored: Mapping[str, StoredArray]) -> None:
        self.facts, self._stored = facts, stored

    @cached_property
    def call(self) -> AttentionCall:
        """The call; its tensors are read on demand, by chunks."""
        facts, source = self.facts, self.source()
        return AttentionCall(
            index=facts.index,
            module=facts.module,
            kind=facts.looks,
            layer=layer_index(facts.module),
            group=facts.group,
            batch=1,
            heads=facts.heads,
            key_heads=facts.key_heads,
            queries=facts.queries,
            keys=facts.keys,
            dtype=arrays.DTYPES[facts.dtype],
            pattern=source.pattern,
            query_text=facts.query_text,
            key_text=facts.key_text,
            view=View.whole(source),
            recorded_effects=self.effects(source) if facts.effects else None,
        )

    def source(self, *, with_lse: bool = True) -> Scores | Weights:
        """Return the source of its matrix.

        Args:
            with_lse: whether to read log-sum-exps instead of computing them.
        """
        facts = self.facts
        pattern = pattern_from_data(facts.pattern, self._whole)
        positions = self._positions()
        bias = None if facts.bias is None else bias_from_data(facts.bias, self._whole)
        self._check(pattern, bias, positions)
        if facts.stored == "weights":
            if isinstance(positions, range):
                positions = torch.arange(positions.start, positions.stop)
            weights = self._tensor("weights", facts.dtype)
            return Weights(weights, pattern, positions, mask_known=facts.mask_known)
        lse_dtype = "float64" if facts.dtype == "float64" else "float32"
        sinks = None if facts.sinks is None else torch.tensor(facts.sinks, dtype=torch.float64)
        call = Attention(
            query=self._tensor("query", facts.dtype),
            key=self._tensor("key", facts.dtype),
            pattern=pattern,
            bias=bias,
            scale=facts.scale,
            sinks=sinks,
            positions=positions,
            lse=self._tensor("lse", lse_dtype) if with_lse else None,
        )
        return Scores(call, mask_known=facts.mask_known)

    def effects(self, weights: Scores | Weights, *, with_totals: bool = True) -> Effects:
        """Return the source of its effects.

        Args:
            weights: the source of its matrix.
            with_totals: whether to read g·o of each query instead of computing it.
        """
        facts = self.facts
        assert facts.effects is not None
        totals = "float64" if facts.dtype == "float64" else "float32"
        return Effects(
            weights,
            self._tensor("value", facts.effects.dtype),
            self._tensor("gradient", facts.effects.dtype),
            known_totals=self._tensor("totals", totals) if with_totals else None,
        )

    def _positions(self) -> range | Tensor:
        """Return the positions of the queries; a range if they are consecutive."""
        first = self.facts.first_position
        if first is not None:
            return range(first, first + self.facts.queries)
        found = self._whole("positions")
        if int(found.abs().max()) > MOST_POSITION:
            raise RecordingError(f"{self} is damaged: positions must be at most {MOST_POSITION:,}")
        return found

    def _check(self, pattern: Pattern, bias: Bias | None, positions: range | Tensor) -> None:
        """Raise RecordingError if the pattern or the bias does not fit the call."""
        facts = self.facts
        queries = span_of(positions)
        try:
            pattern.check(1, queries, facts.keys)
            if bias is not None:
                check_bias(bias, facts.heads, queries, facts.keys)
        except ValueError as error:
            raise RecordingError(f"{self} is damaged: {error}") from error

    @cached_property
    def is_causal(self) -> bool:
        """Whether tiles with all keys after all queries are empty."""
        facts = self.facts
        if facts.looks == "cross":
            return False
        ends = torch.arange(TILE, facts.queries + TILE, TILE)
        inside = ends < facts.keys
        rows = _spans(self.call, range(facts.queries), TILE)
        assert self.call.pattern is not None
        found = self.call.pattern.cover_spans(
            torch.zeros(int(inside.sum()), dtype=torch.long),
            Span(*(end[inside] for end in rows)),
            Span(ends[inside], torch.full_like(ends[inside], facts.keys - 1)),
        )
        return bool((found == Cover.NONE).all())

    def array(self, name: str) -> StoredArray:
        """Return an array.

        Raises:
            RecordingError: there is none.
        """
        if name not in self._stored:
            raise RecordingError(f"{self} is damaged: it has no {name}; record it again")
        return self._stored[name]

    def _tensor(self, name: str, dtype: str) -> StoredTensor:
        return StoredTensor(self.array(name), dtype)

    def _whole(self, name: str) -> Tensor:
        return arrays.as_tensor(self.array(name).read())

    def __str__(self) -> str:
        return f"call {self.facts.index}"


def covers(
    call: AttentionCall, queries: range, keys: range, height: int, width: int
) -> Int8[Tensor, "rows columns"]:
    """Return the `Cover` of each cell of a rectangle.

    Args:
        call: the call.
        queries: the rows of the rectangle.
        keys: its columns.
        height: rows per cell; the last may have fewer.
        width: columns per cell.
    """
    rows = _spans(call, queries, height)
    first = torch.arange(keys.start, keys.stop, width)
    last = (first + width).clamp_max(keys.stop) - 1
    shape = (len(rows.first), len(first))
    assert call.pattern is not None
    return call.pattern.cover_spans(
        torch.zeros(shape, dtype=torch.long),
        Span(*(end[:, None].expand(shape) for end in rows)),
        Span(first.expand(shape), last.expand(shape)),
    )


def _spans(call: AttentionCall, queries: range, height: int) -> Span:
    """Return the lowest and the highest position of every `height` queries."""
    assert call.source is not None
    positions = call.source.positions(queries)
    missing = -len(positions) % height
    padded = torch.cat([positions, positions[-1:].expand(missing)]).view(-1, height)
    return Span(padded.amin(dim=1), padded.amax(dim=1))
