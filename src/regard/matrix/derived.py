"""Numbers of pairs that are computed from their weights: effects on a target, and norms.

weight         A[i, j]
contribution   A[i, j] · g_i·v_j            g: gradient with respect to the output o
effect         A[i, j] · (g_i·v_j − g_i·o_i)
norm           A[i, j] · ‖v_j W_O‖
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.matrix.arithmetic import (
    ROW_GROUP,
    as_rows_of_key_heads,
    grouped,
    head_runs,
    key_heads_of,
    write_products,
)
from regard.matrix.source import (
    OVERWRITTEN,
    Buffers,
    Columns,
    Facts,
    Index,
    KeyColumns,
    LazyTensor,
    PairMask,
    QueryRows,
    Source,
    WeightBlock,
    put,
    read,
    take,
)
from regard.patterns import Pattern
from regard.versions import Overwritten, Versions


@dataclass(eq=False)
class Derived:
    """The common part of sources that multiply weights with something.

    Attributes:
        weights: the attention matrix.
    """

    weights: Source

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

    def head_runs(self, heads: range, most: int) -> Iterator[range]:
        return self.weights.head_runs(heads, most)

    def allowed(self, rows: QueryRows, keys: Index) -> PairMask:
        return self.weights.allowed(rows, keys)


@dataclass(eq=False)
class Norms(Derived):
    """The weight of each pair times a number ≥ 0 for its key; a `Source`.

    Attributes:
        norms: [batch, heads, keys].
    """

    norms: Float[Tensor, "batch heads keys"]

    signed = False

    def check(self) -> None:
        self.weights.check()

    def rows(self, batch: range, heads: range, queries: Index) -> QueryRows:
        return self.weights.rows(batch, heads, queries)

    def has_lse(self, batch: range, heads: range, queries: Index) -> bool:
        return self.weights.has_lse(batch, heads, queries)

    def compute_lse(self, rows: QueryRows, columns: Columns, buffers: Buffers) -> None:
        self.weights.compute_lse(rows, columns, buffers)

    def block(
        self, rows: QueryRows, columns: Columns, facts: Facts, buffers: Buffers, *, whole: bool
    ) -> WeightBlock:
        weights = self.weights.block(rows, columns, (), buffers, whole=whole).weights
        parts = weights.split([len(chunk.keys) for chunk in columns], dim=3)
        for chunk, part in zip(columns, parts, strict=True):
            part.mul_(read(self.norms, rows.batch, rows.heads, chunk.keys)[..., None, :])
        return WeightBlock(weights)


@dataclass(eq=False)
class Effects(Derived):
    """The effect of each pair, or its contribution, from weights, values and gradients; a `Source`.

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
        # The sum of the contributions of a row, which is g·o. NaN where it isn't known yet.
        with torch.inference_mode(False):
            self._row_totals = torch.full(
                self.shape[:3], torch.nan, dtype=self.dtype, device=self.device
            )

    @property
    def group(self) -> int:
        """How many heads share the values of one key head."""
        return self.shape[1] // self.value.shape[1]

    def head_runs(self, heads: range, most: int) -> Iterator[range]:
        return head_runs(heads, self.group, most)

    def check(self) -> None:
        self.weights.check()
        if (name := self._versions.modified()) is not None:
            raise Overwritten(self.overwritten.format(name=name))

    def rows(self, batch: range, heads: range, queries: Index) -> "_EffectRows":
        self.check()
        key_heads = key_heads_of(heads, self.group)
        assert key_heads is not None
        rows = self.weights.rows(batch, heads, queries)
        gradient = read(self.gradient, batch, heads, queries).to(self.dtype)
        gradient = as_rows_of_key_heads(gradient, len(key_heads))
        return _EffectRows(batch, heads, queries, rows.positions, rows, gradient, key_heads)

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

    def compute_lse(self, rows: QueryRows, columns: Columns, buffers: Buffers) -> None:
        """Compute and keep the log-sum-exp of rows, and g·o."""
        assert isinstance(rows, _EffectRows)
        if not self.weights.has_lse(rows.batch, rows.heads, rows.queries):
            self.weights.compute_lse(rows.of_weights, columns, buffers)
        if not self.contributions:
            weights = (
                self.weights.block(rows.of_weights, [chunk], (), buffers, whole=False).weights
                for chunk in columns
            )
            self._compute_totals(rows, columns, weights, buffers)

    def _compute_totals(
        self, rows: "_EffectRows", columns: Columns, weights: Iterator[Tensor], buffers: Buffers
    ) -> Tensor | None:
        """Compute and keep g·o of rows, from their weights on all allowed columns.

        Return A · (g·v), if columns are in one part; of several parts it takes too much memory.
        """
        shape = (len(rows.batch), len(rows.heads), len(rows.queries))
        total = torch.zeros(shape, dtype=self.dtype, device=self.device)
        contributions: Tensor | None = None
        for chunk, part in zip(columns, weights, strict=True):
            contributions = self._products(rows, chunk, buffers).mul_(part)
            total += contributions.sum(dim=3)
        for sequence, sequence_total in zip(rows.batch, total, strict=True):
            put(take(self._row_totals[sequence], 0, rows.heads), 1, rows.queries, sequence_total)
        return contributions if len(columns) == 1 else None

    def _products(
        self, rows: "_EffectRows", columns: KeyColumns, buffers: Buffers
    ) -> Float[Tensor, "batch heads rows columns"]:
        """Compute g·v."""
        value = read(self.value, rows.batch, rows.key_heads, columns.keys).to(self.dtype)
        products = buffers("products", *rows.gradient.shape[:3], value.shape[2])
        write_products(rows.gradient, value, products)
        return products.view(len(rows.batch), len(rows.heads), -1, value.shape[2])

    def block(
        self, rows: QueryRows, columns: Columns, facts: Facts, buffers: Buffers, *, whole: bool
    ) -> WeightBlock:
        assert isinstance(rows, _EffectRows)

        # 1. Weights, and g·o of the rows. If that has just been computed, so have contributions.
        numbers = self.weights.block(rows.of_weights, columns, (), buffers, whole=whole).weights
        parts = numbers.split([len(chunk.keys) for chunk in columns], dim=3)
        contributions: Tensor | None = None
        if whole and not self.has_lse(rows.batch, rows.heads, rows.queries):
            contributions = self._compute_totals(rows, columns, iter(parts), buffers)
        totals = self.totals_of(rows.batch, rows.heads, rows.queries)[..., None]

        # 2. Effects in place of the weights. The buffer of products is free again afterwards.
        group_max: list[Tensor] = []
        sums: list[Tensor] = []
        for chunk, part in zip(columns, parts, strict=True):
            if contributions is None:
                products = self._products(rows, chunk, buffers)
                part.mul_(products if self.contributions else products.sub_(totals))
            else:
                products = contributions
                torch.addcmul(products, part, totals, value=-1.0, out=part)
            if "group_max" in facts:
                group_max.append(grouped(torch.abs(part, out=products), 3, "max"))
            if "sums" in facts:
                sums.append(grouped(part, 2, "sum", ROW_GROUP))

        # 3. Statistics of all columns.
        block = WeightBlock(numbers)
        if group_max:
            block.group_max = torch.cat(group_max, dim=3)
        if sums:
            block.sums = torch.cat(sums, dim=3)
        return block


@dataclass(eq=False)
class _EffectRows(QueryRows):
    """Rows, with the gradients of their outputs.

    Attributes:
        of_weights: the same rows of the weights.
        gradient: heads that share a key head lie one after the other.
        key_heads: the key heads that they attend with.
    """

    of_weights: QueryRows
    gradient: Float[Tensor, "batch key_heads grouped_rows value_dim"]
    key_heads: range
