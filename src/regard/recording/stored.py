"""What a recording has of one call: its arrays, and the call that is read from them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
import zarr
from jaxtyping import Int8
from torch import Tensor
from zarr.storage import LocalStore

from regard.calls.call import AttentionCall, layer_in
from regard.matrix.index import Index, as_tensor
from regard.matrix.scores import Scores
from regard.matrix.view import View
from regard.matrix.weights import Weights
from regard.patterns.cover import Cover, Span
from regard.recording import arrays
from regard.recording.bias_data import bias_from_data
from regard.recording.errors import RecordingError
from regard.recording.pattern_data import pattern_from_data
from regard.recording.schema import TILE, CallFacts

_CACHED_BLOCKS = 128
"""So many chunks of queries and keys stay in memory: 32 MB of float32 with 64 numbers a token."""


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """An array of a recording as a tensor with a batch axis of size 1; see `LazyTensor`.

    Attributes:
        array: [heads, sequence, ...].
        dtype_name: the type of its numbers.
    """

    array: "zarr.Array[Any]"
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
        """Read the chunks that a part needs: rows of heads, or rectangles of them."""
        batch, heads, rows, *keys = where
        if keys:
            places = tuple(np.asarray(as_tensor(index)) for index in where[1:])
            values = arrays.read(self.array, places, orthogonal=True)
            return arrays.as_tensor(values, self.dtype_name)[None][: len(batch)]
        found = torch.empty(1, len(heads), len(rows), *self.array.shape[2:], dtype=self.dtype)
        version = self._version()
        for number, chosen, places in _in_blocks(rows, self.array.chunks[1]):
            for place, head in enumerate(as_tensor(heads).tolist()):
                found[0, place, chosen] = _block(self, version, head, number)[places]
        return found[: len(batch)]

    def _version(self) -> object:
        """Return what differs once another recording was written to the same folder."""
        store = self.array.store
        if not isinstance(store, LocalStore):
            return None
        try:
            found = (store.root / self.array.path / "zarr.json").stat()
        except OSError as error:
            raise RecordingError(f"{self.array.path} is damaged: {error}") from error
        return found.st_ino, found.st_mtime_ns

    def modified(self) -> bool:
        return False


def _in_blocks(rows: Index, height: int) -> Iterator[tuple[int, slice | Tensor, slice | Tensor]]:
    """Yield the blocks that rows lie in, which of the rows, and where in the block they are."""
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


@lru_cache(_CACHED_BLOCKS)
def _block(tensor: StoredTensor, version: object, head: int, number: int) -> Tensor:
    """Read a chunk of one head, of a version of the array."""
    height = tensor.array.chunks[1]
    where = (head, slice(number * height, (number + 1) * height))
    return arrays.as_tensor(arrays.read(tensor.array, where), tensor.dtype_name)


class CallArrays:
    """A call of attention on disk.

    Args:
        facts: what the recording says of it.
        group: where it is stored.
    """

    def __init__(self, facts: CallFacts, group: zarr.Group) -> None:
        self.facts, self._group = facts, group

    @cached_property
    def call(self) -> AttentionCall:
        """The call. Of its tensors only the chunks are read that what is looked at needs."""
        facts, source = self.facts, self.source()
        return AttentionCall(
            index=facts.index,
            module=facts.module,
            kind=facts.looks,
            layer=layer_in(facts.module),
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
        )

    def source(self, *, with_lse: bool = True) -> Scores | Weights:
        """Return where the numbers come from.

        Args:
            with_lse: whether log-sum-exps are read; if not, they are computed.
        """
        facts, first = self.facts, self.facts.first_position
        pattern = pattern_from_data(facts.pattern, self._tensor)
        positions = self._tensor("positions") if first is None else first
        if facts.stored == "weights":
            if not isinstance(positions, Tensor):
                positions = torch.arange(positions, positions + facts.queries)
            return Weights(self._stored("weights"), pattern, positions)
        lse_dtype = "float64" if facts.dtype == "float64" else "float32"
        return Scores(
            self._stored("query"),
            self._stored("key"),
            pattern,
            None if facts.bias is None else bias_from_data(facts.bias, self._tensor),
            facts.scale,
            None if facts.sinks is None else torch.tensor(facts.sinks, dtype=torch.float64),
            positions,
            StoredTensor(self.array("lse"), lse_dtype) if with_lse else None,
        )

    @cached_property
    def is_causal(self) -> bool:
        """Whether no tile of the map has anything in it whose keys all come after its queries."""
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

    def _stored(self, name: str) -> StoredTensor:
        return StoredTensor(self.array(name), self.facts.dtype)

    def _tensor(self, name: str) -> Tensor:
        return arrays.as_tensor(arrays.read(self.array(name)))

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


def covers(
    call: AttentionCall, queries: range, keys: range, height: int, width: int
) -> Int8[Tensor, "rows columns"]:
    """Say how much of each cell of a rectangle is allowed, as `Cover` does.

    Args:
        call: the call.
        queries: the rows of the rectangle.
        keys: its columns.
        height: how many rows a cell has, but for the last.
        width: how many columns it has.
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
    """Return where each so many queries stand: the lowest and the highest position."""
    assert call.source is not None
    positions = call.source.positions(queries)
    missing = -len(positions) % height
    padded = torch.cat([positions, positions[-1:].expand(missing)]).view(-1, height)
    return Span(padded.amin(dim=1), padded.amax(dim=1))
