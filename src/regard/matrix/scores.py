"""A matrix that is computed from queries and keys, on demand: its weights, and its log-sum-exps.

A weight is e^(s − L), L the log-sum-exp of its row. Computing L first would compute every score
twice. So each chunk of columns is exponentiated against its own row maximum m, while it is in the
cache, and corrected when the row is complete (FlashAttention's rescaling, of weights):

             chunk 1       chunk 2       chunk 3
    row      e^(s − m₁)    e^(s − m₂)    e^(s − m₃)           1. one exponential per pair
    sums     l₁            l₂            l₃
                 L = log(l₁e^m₁ + l₂e^m₂ + l₃e^m₃ + e^sink)   2. one number per row
    row      × e^(m₁ − L)  × e^(m₂ − L)  × e^(m₃ − L)         3. one product per pair

Nothing overflows: s ≤ m and m ≤ L, except in masked chunks, where l = 0 and weights are 0. Entropy
comes along: log w = (s − m) + (m − L), so that with t = Σ (s − m) e^(s − m) of a chunk

    −Σ w log w = −Σ e^(m − L) (t + (m − L) l), summed over chunks,

and so do maxima of neighbours, which are those of their scores, and sums over rows.

Cost per pair: key_dim multiply-adds, one exponential, one product. L is kept: parts of the rows are
computed from it. Tried and dropped: L first (1.12–1.2 times as long on the pages of a document),
and exponentials of small scores without their maximum, corrected on demand (0.87–1.15, and two ways
through every statistic).
"""

from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.call import Attention, Index, LazyTensor
from regard.internals import warm_up_mkl
from regard.matrix.arithmetic import (
    ROW_GROUP,
    as_rows_of_key_heads,
    exponential_,
    grouped,
    key_heads_of,
    write_products,
)
from regard.matrix.source import (
    OVERWRITTEN,
    Block,
    Buffers,
    Columns,
    Fact,
    Facts,
    KeyColumns,
    PairMask,
    QueryRows,
    as_tensor,
    lowest,
    put,
    read,
    take,
)
from regard.patterns import Pattern
from regard.versions import Overwritten, Versions

_Query = Float[Tensor, "batch key_heads grouped_rows key_dim"]
"""Scaled queries; heads that share a key head lie one after the other."""

_Parts = list[tuple[KeyColumns, Tensor]]
"""Chunks of columns, and where to write their weights."""


@dataclass(eq=False)
class Scores:
    """Queries and keys, and a cache of log-sum-exps; see `Source`.

    Attributes:
        call: the call of attention.
        overwritten: the message if a tensor was modified in place.
        mask_known: whether the bias is known to mask no pairs but those of its lowest numbers.
        pattern: its pattern, without the members that make no difference here.
    """

    call: Attention
    overwritten: str = OVERWRITTEN
    mask_known: bool = True
    pattern: Pattern = field(init=False, repr=False)
    _versions: Versions = field(init=False, repr=False)
    _value_version: Versions = field(init=False, repr=False)

    signed = False

    def __post_init__(self) -> None:
        warm_up_mkl()
        call = self.call
        self.pattern = call.simple_pattern
        tensors = [("query", call.query), ("key", call.key)]
        tensors += [("bias", tensor) for tensor in (call.bias.tensors if call.bias else ())]
        leaves = call.pattern.leaves()
        tensors += [("mask", tensor) for leaf in leaves for tensor in leaf.tensors]
        self._versions = Versions((name, x) for name, x in tensors if isinstance(x, Tensor))
        self._value_version = Versions([] if call.value is None else [("value", call.value)])

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.call.sizes

    @property
    def dtype(self) -> torch.dtype:
        return self.call.lse_dtype

    @property
    def device(self) -> torch.device:
        return self.call.query.device

    @property
    def group(self) -> int:
        return self.call.group

    @property
    def biased(self) -> bool:
        return self.call.bias is not None

    def positions(self, queries: Index) -> Int[Tensor, "rows"]:
        places = self.call.positions
        if isinstance(places, range):
            return as_tensor(queries) + places.start
        return places[as_tensor(queries)]

    def has_lse(self, batch: range, heads: range, queries: Index) -> bool:
        self.check()
        if self.call.lse is not None and not isinstance(self.call.lse, Tensor):
            return True
        return not bool(self.lse_of(batch, heads, queries).isnan().any())

    def check(self) -> None:
        name = self._versions.modified()
        for lazy_name, tensor in (("query", self.call.query), ("key", self.call.key)):
            if not isinstance(tensor, Tensor) and tensor.modified():
                name = lazy_name
        if name is not None:
            raise Overwritten(self.overwritten.format(name=name))

    def check_value(self) -> None:
        """Raise Overwritten if the value, which the matrix does not need, was modified in place."""
        if self._value_version.modified():
            raise Overwritten(self.overwritten.format(name="value"))

    @property
    def whole_query(self) -> Float[Tensor, "batch heads queries key_dim"]:
        """All queries."""
        return read(self.call.query, *(range(size) for size in self.call.query.shape[:3]))

    @property
    def whole_key(self) -> Float[Tensor, "batch key_heads keys key_dim"]:
        """All keys."""
        return read(self.call.key, *(range(size) for size in self.call.key.shape[:3]))

    def lse_of(
        self, batch: range, heads: range, queries: Index
    ) -> Float[Tensor, "some_batch some_heads rows"]:
        """Return the log-sum-exp of rows, sinks included; NaN where it isn't known yet."""
        return read(self._lse, batch, heads, queries)

    @cached_property
    def _lse(self) -> Tensor | LazyTensor:
        """What is known of the log-sum-exp of all rows, NaN elsewhere."""
        lse, shape = self.call.lse, self.shape
        if lse is not None and not isinstance(lse, Tensor):
            return lse
        # A matrix that is made in inference mode may be read outside of it.
        with torch.inference_mode(False):
            if lse is None:
                # Rows without keys are never computed.
                unknown = torch.nan if shape[3] else -torch.inf
                lse = torch.full(shape[:3], unknown, dtype=self.dtype, device=self.device)
                if self.call.sinks is not None:
                    lse = torch.logaddexp(lse, self.call.sinks.to(self.dtype)[:, None])
            return lse.to(self.dtype)

    def keep_lse(
        self,
        batch: range,
        heads: range,
        queries: Index,
        lse: Float[Tensor, "some_batch some_heads rows"],
    ) -> Float[Tensor, "some_batch some_heads rows"]:
        """Cache the log-sum-exp of rows, sinks included; return it, or the known one."""
        # A known log-sum-exp stays, beside a row of NaN too.
        known = self.lse_of(batch, heads, queries)
        lse = torch.where(known.isnan(), lse, known)
        if isinstance(self._lse, Tensor):
            for sequence, sequence_lse in zip(batch, lse, strict=True):
                put(take(self._lse[sequence], 0, heads), 1, queries, sequence_lse)
        return lse

    def block(
        self, rows: QueryRows, columns: Columns, facts: Facts, buffers: Buffers, *, whole: bool
    ) -> Block:
        self.check()
        query = self._grouped_query(rows)
        widths = [len(chunk.keys) for chunk in columns]
        weights = buffers("weights", *rows.sizes, sum(widths))
        parts = list(zip(columns, weights.split(widths, dim=3), strict=True))
        if whole and not self.has_lse(rows.batch, rows.heads, rows.queries):
            return weights, self._write_new(rows, query, parts, facts, buffers)
        return weights, self._write_known(rows, query, parts, facts, buffers)

    def _write_known(
        self, rows: QueryRows, query: _Query, parts: _Parts, facts: Facts, buffers: Buffers
    ) -> dict[Fact, Tensor]:
        """Write the weights of rows whose log-sum-exp is known; return the statistics."""
        lse = _finite(self.lse_of(rows.batch, rows.heads, rows.queries)[..., None])
        entropies: list[Tensor] = []
        maxima: list[Tensor] = []
        column_sums: list[Tensor] = []
        for chunk, weights in parts:
            scores = self._scores(rows, query, chunk, buffers)
            if "group_max" in facts:
                maxima.append(grouped(scores, 3, "max"))
            exponential_(scores.sub_(lse), out=weights)
            if "entropy" in facts:
                entropies.append(-scores.mul_(weights).sum(dim=3))
            if "sums" in facts:
                column_sums.append(grouped(weights, 2, "sum", ROW_GROUP))
        return _statistics(entropies, maxima, lse, column_sums)

    def _write_new(
        self, rows: QueryRows, query: _Query, parts: _Parts, facts: Facts, buffers: Buffers
    ) -> dict[Fact, Tensor]:
        """Write the weights of whole rows, and keep their log-sum-exp; return the statistics."""
        entropies: list[Tensor] = []
        maxima: list[Tensor] = []
        column_sums: list[Tensor] = []
        sizes = (*rows.sizes, len(parts))
        bases, sums, score_sums = torch.empty(3, *sizes, dtype=self.dtype, device=self.device)

        # 1. Exponentiate each chunk against its own maximum.
        for number, (chunk, weights) in enumerate(parts):
            scores = self._scores(rows, query, chunk, buffers)
            tops = scores
            if "group_max" in facts:
                tops = grouped(scores, 3, "max")
                maxima.append(tops)
            # Nothing is subtracted from rows whose pairs are all masked: their weights become 0.
            base = tops.amax(dim=3)
            bases[..., number] = base.masked_fill_(base <= lowest(self.dtype), 0.0)
            exponential_(scores.sub_(base[..., None]), out=weights)
            sums[..., number] = weights.sum(dim=3)
            if "entropy" in facts:
                score_sums[..., number] = scores.mul_(weights).sum(dim=3)

        # 2. The log-sum-exp of the row.
        lse = (bases + sums.log()).logsumexp(dim=3)
        if self.call.sinks is not None:
            lse = torch.logaddexp(lse, take(self.call.sinks.to(self.dtype), 0, rows.heads)[:, None])
        lse = _finite(self.keep_lse(rows.batch, rows.heads, rows.queries, lse)[..., None])

        # 3. Correct each chunk. The factor of a masked one may be infinite, and 0 · ∞ is NaN.
        log_factors = bases - lse
        factors = exponential_(log_factors.clone()).masked_fill_(sums == 0.0, 0.0)
        for (_, weights), factor in zip(parts, factors.unbind(dim=3), strict=True):
            weights.mul_(factor[..., None])
            if "sums" in facts:
                column_sums.append(grouped(weights, 2, "sum", ROW_GROUP))

        # 4. Statistics of the row. The logarithm of a weight is its exponent and the correction.
        if "entropy" in facts:
            entropies.append(-(factors * (score_sums + log_factors * sums)).sum(dim=3))
        row_sums: dict[Fact, Tensor] = {"row_sums": (sums * factors).sum(dim=3)}
        return row_sums | _statistics(entropies, maxima, lse, column_sums)

    def scores(
        self, rows: QueryRows, columns: KeyColumns, buffers: Buffers
    ) -> Float[Tensor, "batch heads rows columns"]:
        """Compute scores, with scale and bias; far below all others where a pair is masked."""
        self.check()
        return self._scores(rows, self._grouped_query(rows), columns, buffers)

    def scaled_query(
        self, batch: range, heads: range, queries: Index
    ) -> Float[Tensor, "some_batch some_heads rows key_dim"]:
        """Return queries, multiplied by the scale."""
        return read(self.call.query, batch, heads, queries).to(self.dtype) * self.call.scale

    def _grouped_query(self, rows: QueryRows) -> _Query:
        query = self.scaled_query(rows.batch, rows.heads, rows.queries)
        return as_rows_of_key_heads(query, len(key_heads_of(rows.heads, self.group)))

    def _scores(
        self, rows: QueryRows, query: _Query, columns: KeyColumns, buffers: Buffers
    ) -> Float[Tensor, "batch heads rows columns"]:
        key_heads = key_heads_of(rows.heads, self.group)
        key = read(self.call.key, rows.batch, key_heads, columns.keys).to(self.dtype)
        scores = buffers("scores", *query.shape[:3], key.shape[2])
        write_products(query, key, scores)
        scores = scores.view(*rows.sizes, key.shape[2])
        if self.call.bias is not None:
            scores = self._biased(scores, rows, columns.keys).clamp_min(lowest(self.dtype))
        for span in columns.partial:
            masked = ~rows.test(self.pattern, columns.keys[span])
            scores[..., span].masked_fill_(masked, lowest(self.dtype))
        return scores

    def _biased(self, scores: Tensor, rows: QueryRows, keys: Index) -> Tensor:
        assert self.call.bias is not None
        batch, head = (as_tensor(x).to(self.device) for x in (rows.batch, rows.heads))
        key = as_tensor(keys).to(self.device)
        places = (batch[:, None, None, None], head[:, None, None], rows.positions[:, None], key)
        return self.call.bias.adjust(scores, *places)

    def allowed(self, rows: QueryRows, keys: Index) -> PairMask:
        allowed = rows.test(self.pattern, keys)
        if self.call.bias is None:
            return allowed
        shape = (len(rows.batch), len(rows.heads), *allowed.shape[2:])
        zeros = torch.zeros(shape, dtype=self.dtype, device=self.device)
        # A bias that masks leaves a number as low as that of a masked pair, whatever the score.
        return allowed & ~(self._biased(zeros, rows, keys) <= lowest(self.dtype))


def _statistics(
    entropies: list[Tensor], maxima: list[Tensor], lse: Tensor, column_sums: list[Tensor]
) -> dict[Fact, Tensor]:
    """Join the statistics of chunks: sums of rows, maxima of scores, and sums of columns."""
    statistics: dict[Fact, Tensor] = {}
    if entropies:
        statistics["entropy"] = torch.stack(entropies).sum(dim=0)
    if maxima:
        statistics["group_max"] = exponential_(torch.cat(maxima, dim=3).sub_(lse))
    if column_sums:
        statistics["sums"] = torch.cat(column_sums, dim=3)
    return statistics


def _finite(lse: Tensor) -> Tensor:
    return lse.masked_fill(lse <= lowest(lse.dtype), 0.0)
