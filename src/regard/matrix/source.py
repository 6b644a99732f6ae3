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
    """Some rows in some heads of some sequences, by the indices of the source.

    Attributes:
        batch: which sequences.
        heads: which heads.
        queries: which rows.
        positions: where they stand, on the device.
    """

    batch: range
    heads: range
    queries: Index
    positions: Int[Tensor, "rows"]

    def test(self, pattern: Pattern, keys: Index) -> Bool[Tensor, "some_batch 1 rows some_columns"]:
        """Say which of these rows a pattern lets look at which keys."""
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
    """Some columns that rows may look at, by the indices of the source.

    Attributes:
        keys: which columns.
        partial: the runs of them in which the pattern may forbid some pairs.
    """

    keys: Index
    partial: Sequence[slice]


Fact = Literal["entropy", "group_max", "sums"]
"""What can be found out on the way, while numbers are at hand; see `WeightBlock`."""


@dataclass(eq=False)
class WeightBlock:
    """The numbers of some rows, and what was found out on the way.

    Attributes:
        weights: what the matrix holds.
        entropy: −Σ w · log w of each row; None if that wasn't asked for, as all below.
        group_max: the largest of each 64 neighbouring weights, by size if they are signed; the last
            group may be smaller.
        sums: the sum of each column over each 16 rows; the last group may be smaller.
        row_sums: the sum of each row, if it was found on the way.
    """

    weights: Float[Tensor, "batch heads rows columns"]
    entropy: Float[Tensor, "batch heads rows"] | None = None
    group_max: Float[Tensor, "batch heads rows column_groups"] | None = None
    sums: Float[Tensor, "batch heads row_groups columns"] | None = None
    row_sums: Float[Tensor, "batch heads rows"] | None = None


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
    """What an attention matrix is made of. Keys stand at 0 … keys − 1."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Batch, heads, queries and keys."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the weights are computed."""
        ...

    @property
    def pattern(self) -> Pattern:
        """Who may look at whom."""
        ...

    @property
    def biased(self) -> bool:
        """Whether something beside the pattern may forbid a pair."""
        ...

    @property
    def signed(self) -> bool:
        """Whether numbers may lie below 0, as effects do; then the largest is that by size."""
        ...

    def positions(self, queries: Index) -> Int[Tensor, "rows"]:
        """Return where queries stand among the keys, on the CPU."""
        ...

    def head_runs(self, heads: range, most: int) -> Iterator[range]:
        """Cut heads into runs that can be computed together, none longer than `most`."""
        ...

    def allowed(
        self, rows: QueryRows, keys: Index
    ) -> Bool[Tensor, "some_batch heads_or_1 rows some_columns"]:
        """Say which rows may look at which columns."""
        ...

    def has_lse(self, batch: range, heads: range, queries: Index) -> bool:
        """Say whether parts of rows can be computed: whether their log-sum-exp is known."""
        ...

    def rows(self, batch: range, heads: range, queries: Index) -> QueryRows:
        """Get ready to compute rectangles of these rows."""
        ...

    def check(self) -> None:
        """Raise `Overwritten` if a tensor was modified in place since the source was made."""
        ...

    def compute_lse(self, rows: QueryRows, columns: Sequence[KeyColumns], buffers: Buffers) -> None:
        """Compute and keep the log-sum-exp of rows, from all columns that they may look at."""
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
        """Compute rows. What it returns lasts until the buffers are used again.

        Args:
            rows: which rows.
            columns: which columns, a few at a time so that they stay in the cache.
            facts: what to find out on the way.
            buffers: memory to use.
            whole: whether these are all columns that the rows may look at; if not, the rows must
                have their log-sum-exp.
        """
        ...


def lowest(dtype: torch.dtype) -> float:
    """Return the score of a forbidden pair: far below any other, and 0 when multiplied by 0."""
    return torch.finfo(dtype).min / 4
