"""Numbers of pairs that are computed from their weights: effects on a target, and norms.

weight         A[i, j]
contribution   A[i, j] · g_i·v_j            g: gradient with respect to the output o
effect         A[i, j] · (g_i·v_j − g_i·o_i)
norm           A[i, j] · ‖v_j W_O‖
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.matrix.arithmetic import (
    as_rows_of_key_heads,
    key_heads_of,
    write_products,
)
from regard.matrix.source import (
    OVERWRITTEN,
    Block,
    Buffers,
    Columns,
    Facts,
    Index,
    KeyColumns,
    LazyTensor,
    PairMask,
    QueryRows,
    Source,
    put,
    read,
    take,
)
from regard.patterns import Pattern
from regard.versions import Overwritten, Versions


@dataclass(eq=False)
class Weighted:
    """The weight of each pair times a factor, which a subclass computes; a `Source`.

    Attributes:
        weights: the source of the weights.
    """

    weights: Source

    signed = False

    def factors(self, rows: QueryRows, columns: Columns, buffers: Buffers) -> Iterator[Tensor]:
        """Yield the factors of each chunk of columns, [batch, heads, rows or 1, columns]."""
        raise NotImplementedError

    def prepare(self, rows: QueryRows, columns: Columns, weights: Sequence[Tensor]) -> None:
        """Compute and keep what the factors need of whole rows, from their weights."""

    def block(
        self, rows: QueryRows, columns: Columns, facts: Facts, buffers: Buffers, *, whole: bool
    ) -> Block:
        self.check()
        is_new = whole and not self.has_lse(rows.batch, rows.heads, rows.queries)
        weights, _ = self.weights.block(rows, columns, (), buffers, whole=whole)
        chunks = weights.split([len(chunk.keys) for chunk in columns], dim=3)
        with torch.autocast(self.device.type, enabled=False):
            if is_new:
                self.prepare(rows, columns, chunks)
            for numbers, factor in zip(chunks, self.factors(rows, columns, buffers), strict=True):
                numbers.mul_(factor)
        return weights, {}

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.weights.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.weights.dtype

    @property
    def device(self) -> torch.device:
        return self.weights.device

    @property
    def pattern(self) -> Pattern:
        return self.weights.pattern

    @property
    def mask_known(self) -> bool:
        return self.weights.mask_known

    @property
    def biased(self) -> bool:
        return self.weights.biased

    def positions(self, queries: Index) -> Int[Tensor, "rows"]:
        return self.weights.positions(queries)

    @property
    def group(self) -> int:
        return self.weights.group

    def allowed(self, rows: QueryRows, keys: Index) -> PairMask:
        return self.weights.allowed(rows, keys)

    def has_lse(self, batch: range, heads: range, queries: Index) -> bool:
        return self.weights.has_lse(batch, heads, queries)

    def check(self) -> None:
        self.weights.check()


@dataclass(eq=False)
class Norms(Weighted):
    """The weight of each pair times a number ≥ 0 for its key.

    Attributes:
        norms: [batch, heads, keys].
    """

    norms: Float[Tensor, "batch heads keys"]

    def factors(self, rows: QueryRows, columns: Columns, buffers: Buffers) -> Iterator[Tensor]:
        for chunk in columns:
            yield read(self.norms, rows.batch, rows.heads, chunk.keys)[..., None, :]


@dataclass(eq=False)
class Effects(Weighted):
    """The effect of each pair, or its contribution, from weights, values and gradients.

    With g the gradient of a target with respect to the output o, the contribution of a pair is
    A · (g·v), and its effect A · (g·v − g·o).

    Attributes:
        value: [batch, key_heads, keys, value_dim].
        gradient: of the target with respect to the output, [batch, heads, queries, value_dim].
        contributions: whether to leave g·o out.
        overwritten: the message if a tensor was modified in place.
        known_totals: g·o of each row, [batch, heads, queries], if known.
    """

    value: Float[Tensor, "batch key_heads keys value_dim"] | LazyTensor
    gradient: Float[Tensor, "batch heads queries value_dim"] | LazyTensor
    contributions: bool = False
    overwritten: str = OVERWRITTEN
    known_totals: Tensor | LazyTensor | None = None
    _versions: Versions = field(init=False, repr=False)
    _row_totals: Tensor = field(init=False, repr=False)

    signed = True

    def __post_init__(self) -> None:
        tensors = (("value", self.value), ("gradient", self.gradient))
        self._versions = Versions((name, x) for name, x in tensors if isinstance(x, Tensor))
        # g·o, the sum of the contributions of a row. NaN where it isn't known yet.
        with torch.inference_mode(False):
            self._row_totals = torch.full(
                self.shape[:3], torch.nan, dtype=self.dtype, device=self.device
            )

    @property
    def group(self) -> int:
        """How many heads share the values of one key head."""
        return self.shape[1] // self.value.shape[1]

    def check(self) -> None:
        self.weights.check()
        if (name := self._versions.modified()) is not None:
            raise Overwritten(self.overwritten.format(name=name))

    def has_lse(self, batch: range, heads: range, queries: Index) -> bool:
        """Return whether parts of rows can be computed: whether g·o is known too."""
        if not self.weights.has_lse(batch, heads, queries):
            return False
        if self.contributions or self.known_totals is not None:
            return True
        return not bool(read(self._row_totals, batch, heads, queries).isnan().any())

    def totals_of(
        self, batch: range, heads: range, queries: Index
    ) -> Float[Tensor, "some_batch some_heads rows"]:
        """Return g·o of rows; NaN where it is not known yet."""
        known = self._row_totals if self.known_totals is None else self.known_totals
        return read(known, batch, heads, queries)

    def prepare(self, rows: QueryRows, columns: Columns, weights: Sequence[Tensor]) -> None:
        if self.contributions or self.known_totals is not None:
            return
        gradient = self._gradient(rows)
        output = torch.zeros_like(gradient)
        for chunk, part in zip(columns, weights, strict=True):
            value = self._value(rows, chunk)
            output += as_rows_of_key_heads(part, value.shape[1]) @ value
        totals = (gradient * output).sum(dim=3).view(rows.sizes)
        for sequence, sequence_totals in zip(rows.batch, totals, strict=True):
            put(take(self._row_totals[sequence], 0, rows.heads), 1, rows.queries, sequence_totals)

    def factors(self, rows: QueryRows, columns: Columns, buffers: Buffers) -> Iterator[Tensor]:
        gradient = self._gradient(rows)
        totals = self.totals_of(rows.batch, rows.heads, rows.queries)[..., None]
        for chunk in columns:
            value = self._value(rows, chunk)
            products = buffers("products", *gradient.shape[:3], value.shape[2])
            write_products(gradient, value, products)
            products = products.view(*rows.sizes, value.shape[2])
            yield products if self.contributions else products.sub_(totals)

    def _gradient(self, rows: QueryRows) -> Float[Tensor, "batch key_heads grouped_rows value_dim"]:
        gradient = read(self.gradient, rows.batch, rows.heads, rows.queries).to(self.dtype)
        return as_rows_of_key_heads(gradient, len(key_heads_of(rows.heads, self.group)))

    def _value(
        self, rows: QueryRows, columns: KeyColumns
    ) -> Float[Tensor, "batch key_heads columns value_dim"]:
        key_heads = key_heads_of(rows.heads, self.group)
        return read(self.value, rows.batch, key_heads, columns.keys).to(self.dtype)
