"""Where the numbers of an attention matrix come from."""

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.matrix.index import Index, as_tensor
from regard.patterns import Pattern


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

    def test(self, pattern: Pattern, keys: Index) -> Bool[Tensor, "some_batch 1 rows some_columns"]:
        """Return the pairs of these rows and keys that a pattern allows."""
        device = self.positions.device
        batch = as_tensor(self.batch).to(device)[:, None, None, None]
        where = as_tensor(keys).to(device)
        allowed = pattern.test(batch, self.positions[:, None], where)
        return allowed.expand(len(batch), 1, len(self.positions), len(where))

    @cached_property
    def span(self) -> tuple[int, int]:
        """The lowest and the highest of the positions."""
        low, high = self.positions.aminmax()
        return int(low), int(high)


class KeyColumns(NamedTuple):
    """Some columns, in the source.

    Attributes:
        keys: the columns.
        partial: runs of them in which some pairs may be masked.
    """

    keys: Index
    partial: Sequence[slice]


Fact = Literal["entropy", "group_max", "sums"]
"""What can be found out on the way, while numbers are at hand; see `WeightBlock`."""


@dataclass(eq=False)
class WeightBlock:
    """The numbers of some rows, and what was found out on the way.

    Attributes:
        numbers: what the matrix holds, divided by `factors` if there are any.
        factors: a factor of each row, applied to all numbers when `weights` is first read.
        entropy: −Σ w · log w of each row; None if that wasn't asked for, as all below.
        group_max: the largest of each 64 neighbouring weights, by size if they are signed; the last
            group may be smaller.
        sums: the sum of each column over each 16 rows; the last group may be smaller.
        row_sums: the sum of each row, if it was found on the way.
    """

    numbers: Float[Tensor, "batch heads rows columns"]
    factors: Float[Tensor, "batch heads rows 1"] | None = None
    entropy: Float[Tensor, "batch heads rows"] | None = None
    group_max: Float[Tensor, "batch heads rows column_groups"] | None = None
    sums: Float[Tensor, "batch heads row_groups columns"] | None = None
    row_sums: Float[Tensor, "batch heads rows"] | None = None

    @property
    def weights(self) -> Float[Tensor, "batch heads rows columns"]:
        """What the matrix holds."""
        if self.factors is not None:
            self.numbers.mul_(self.factors)
            self.factors = None
        return self.numbers

    def scaled(
        self, numbers: Float[Tensor, "batch heads rows some"]
    ) -> Float[Tensor, "batch heads rows some"]:
        """Return the weights of some of the numbers: cheaper than all weights, if few."""
        return numbers if self.factors is None else numbers * self.factors


class Buffers:
    """Memory of one pass, that one rectangle after the other is written to.

    Attributes:
        longest_keys: the largest norm of keys, by which these are: rows of a pass share them.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype, self._device = dtype, device
        self._flat: dict[str, Tensor] = {}
        self.longest_keys: dict[Hashable, Tensor] = {}

    def __call__(self, name: str, *shape: int) -> Tensor:
        """Return the buffer of a name in a shape, with anything in it."""
        size = prod(shape)
        if name not in self._flat or self._flat[name].numel() < size:
            self._flat.pop(name, None)
            self._flat[name] = torch.empty(size, dtype=self._dtype, device=self._device)
        return self._flat[name][:size].view(shape)


OVERWRITTEN = (
    "{name} was modified in place after the attention matrix was made from it: "
    "make the matrix from {name}.clone()"
)
"""What is said if a tensor was modified in place that a matrix was made from."""


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

    def head_runs(self, heads: range, most: int) -> Iterator[range]:
        """Split heads into runs of at most `most` that can be computed together."""
        ...

    def allowed(
        self, rows: QueryRows, keys: Index
    ) -> Bool[Tensor, "some_batch heads_or_1 rows some_columns"]:
        """Return which pairs of rows and columns are allowed."""
        ...

    def has_lse(self, batch: range, heads: range, queries: Index) -> bool:
        """Return whether the log-sum-exp of rows is known, so that parts can be computed."""
        ...

    def rows(self, batch: range, heads: range, queries: Index) -> QueryRows:
        """Prepare the computation of rectangles of these rows."""
        ...

    def check(self) -> None:
        """Raise `Overwritten` if a tensor was modified in place since the source was made."""
        ...

    def compute_lse(self, rows: QueryRows, columns: Sequence[KeyColumns], buffers: Buffers) -> None:
        """Compute and cache the log-sum-exp of rows, from all their allowed columns."""
        ...

    def block(
        self,
        rows: QueryRows,
        columns: Sequence[KeyColumns],
        facts: Collection[Fact],
        buffers: Buffers,
        *,
        whole: bool,
    ) -> WeightBlock:
        """Compute rows; the result is valid until the buffers are reused.

        Args:
            rows: the rows.
            columns: the columns, in chunks that fit into the CPU's cache.
            facts: the facts to compute.
            buffers: memory to use.
            whole: whether these are all allowed columns; if not, the log-sum-exp must be known.
        """
        ...


def lowest(dtype: torch.dtype) -> float:
    """Return the score of a masked pair: far below any other, and finite."""
    return torch.finfo(dtype).min / 4
