"""The data behind an attention matrix: a protocol, and the parts in which it is computed.

    source.block(rows, [KeyColumns, …], …)         the numbers of some rows, and their statistics

Indices along an axis are ranges, which read in place, or lists of indices.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.patterns import Pattern

Index = range | Tensor
"""Indices along an axis: a range, or any, [places], on the CPU."""


@runtime_checkable
class LazyTensor(Protocol):
    """A tensor that is read in parts, on demand.

    Attributes:
        shape: its shape.
        dtype: its dtype.
        device: the device of its parts.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def device(self) -> torch.device: ...

    def read(self, *indices: Index) -> Tensor:
        """Return the part at an index for each of the first axes."""
        ...

    def modified(self) -> bool:
        """Return whether it was modified in place since it was made."""
        ...


@dataclass(eq=False)
class QueryRows:
    """Some rows of some heads and sequences, in the source.

    Attributes:
        batch: the sequences.
        heads: the heads.
        queries: the rows.
        positions: their positions, on the device.
    """

    batch: range
    heads: range
    queries: Index
    positions: Int[Tensor, "rows"]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Sequences, heads and rows."""
        return len(self.batch), len(self.heads), len(self.queries)

    def test(self, pattern: Pattern, keys: Index) -> Bool[Tensor, "some_batch 1 rows some_columns"]:
        """Return the pairs of these rows and keys that a pattern allows."""
        device = self.positions.device
        batch = as_tensor(self.batch).to(device)[:, None, None, None]
        key_positions = as_tensor(keys).to(device)
        allowed = pattern.test(batch, self.positions[:, None], key_positions)
        return allowed.expand(len(batch), 1, len(self.positions), len(key_positions))


class KeyColumns(NamedTuple):
    """Some columns, in the source.

    Attributes:
        keys: the columns.
        partial: runs of them in which some pairs may be masked.
    """

    keys: Index
    partial: Sequence[slice]


Columns = Sequence[KeyColumns]
"""Columns in chunks that fit into the CPU's cache."""

PairMask = Bool[Tensor, "some_batch heads_or_1 rows some_columns"]
"""Which pairs of some rows and columns are allowed."""

Fact = Literal["entropy", "group_max", "sums", "row_sums"]
"""A statistic that is cheaper to compute with the weights of a tile; see `Tile`."""

Facts = Collection[Fact]

Block = tuple[Float[Tensor, "batch heads rows columns"], dict[Fact, Tensor]]
"""The weights of some rows, and statistics that were computed with them."""


class Buffers:
    """Memory of one pass, which its rectangles overwrite one after another."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype, self._device = dtype, device
        self._flat: dict[str, Tensor] = {}

    def __call__(self, name: str, *shape: int) -> Tensor:
        """Return the buffer of a name in a shape, uninitialised."""
        size = prod(shape)
        if name not in self._flat or self._flat[name].numel() < size:
            self._flat.pop(name, None)
            self._flat[name] = torch.empty(size, dtype=self._dtype, device=self._device)
        return self._flat[name][:size].view(shape)


OVERWRITTEN = (
    "{name} was modified in place after the attention matrix was made from it: "
    "make the matrix from {name}.clone()"
)
"""The error message if a tensor of a matrix was modified in place."""


@runtime_checkable
class Source(Protocol):
    """The data behind an attention matrix. Keys have positions 0 … keys − 1."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Batch, heads, queries and keys."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        ...

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        ...

    @property
    def pattern(self) -> Pattern:
        """The mask."""
        ...

    @property
    def mask_known(self) -> bool:
        """Whether it is known which pairs are masked; if not, `allowed` can't be trusted."""
        ...

    @property
    def biased(self) -> bool:
        """Whether a bias may also mask pairs."""
        ...

    @property
    def signed(self) -> bool:
        """Whether numbers may be negative, as effects; then they are compared by absolute value."""
        ...

    def positions(self, queries: Index) -> Int[Tensor, "rows"]:
        """Return the positions of queries, on the CPU."""
        ...

    @property
    def group(self) -> int:
        """How many heads share a key head."""
        ...

    def allowed(self, rows: QueryRows, keys: Index) -> PairMask:
        """Return which pairs of rows and columns are allowed."""
        ...

    def has_lse(self, batch: range, heads: range, queries: Index) -> bool:
        """Return whether the log-sum-exp of rows is known, so that parts can be computed."""
        ...

    def check(self) -> None:
        """Raise `Overwritten` if a tensor was modified in place since the source was made."""
        ...

    def block(
        self, rows: QueryRows, columns: Columns, facts: Facts, buffers: Buffers, *, whole: bool
    ) -> Block:
        """Compute rows; the result is valid until the buffers are reused.

        Of whole rows, what parts of them need is kept: the log-sum-exp.

        Args:
            rows: the rows.
            columns: the columns.
            facts: the statistics to compute.
            buffers: memory to use.
            whole: whether these are all allowed columns; if not, the log-sum-exp must be known.
        """
        ...


def lowest(dtype: torch.dtype) -> float:
    """Return the score of a masked pair: far below any other, and finite."""
    return torch.finfo(dtype).min / 4


def read(tensor: Tensor | LazyTensor, *indices: Index) -> Tensor:
    """Return the part of a tensor at an index for each of its first axes.

    It is a view if all of them are ranges and the tensor is in memory.
    """
    if not isinstance(tensor, Tensor):
        return tensor.read(*indices)
    for axis, index in enumerate(indices):
        tensor = take(tensor, axis, index)
    return tensor


def take(tensor: Tensor, axis: int, index: Index) -> Tensor:
    """Index an axis; a view for a range."""
    if isinstance(index, range):
        whole_axes = (slice(None),) * axis
        return tensor[(*whole_axes, slice(index.start, index.stop, index.step))]
    return tensor.index_select(axis, index.to(tensor.device))


def put(tensor: Tensor, axis: int, index: Index, values: Tensor) -> None:
    """Write values at an index of an axis."""
    if isinstance(index, range):
        take(tensor, axis, index).copy_(values)
    else:
        tensor.index_copy_(axis, index.to(tensor.device), values)


def as_tensor(index: Index) -> Tensor:
    """Return an index as a tensor, [places], on the CPU."""
    if isinstance(index, range):
        return torch.arange(index.start, index.stop, index.step, device="cpu")
    return index
