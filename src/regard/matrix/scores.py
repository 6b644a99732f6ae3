"""A matrix that is computed from queries and keys, on demand."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock

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
    head_runs,
    key_heads_of,
    lowest_exponent,
    write_products,
)
from regard.matrix.source import (
    OVERWRITTEN,
    Buffers,
    Columns,
    Fact,
    Facts,
    KeyColumns,
    PairMask,
    QueryRows,
    WeightBlock,
    as_tensor,
    lowest,
    put,
    read,
    take,
)
from regard.patterns import Pattern
from regard.versions import Overwritten, Versions

_LOCK = Lock()

_MANY, _MANY_PAIRS = 32, 2**18
"""From so many rows, keys and pairs on, norms take less time than the guards that they save."""

_SMALL = 64.0
"""Scores up to this size are exponentiated as they are: float32 has e⁶⁴ · n, and its inverse."""

_PerRow = Float[Tensor, "batch heads rows 1"]

_FactParts = dict[Fact, list[Tensor]]
"""The statistics to compute, and their parts: a tensor for each chunk of columns."""


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
    _kept_lse: Tensor | LazyTensor | None = field(default=None, init=False, repr=False)

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
    def biased(self) -> bool:
        return self.call.bias is not None

    def positions(self, queries: Index) -> Int[Tensor, "rows"]:
        places = self.call.positions
        if isinstance(places, range):
            return as_tensor(queries) + places.start
        return places[as_tensor(queries)]

    def head_runs(self, heads: range, most: int) -> Iterator[range]:
        return head_runs(heads, self.call.group, most)

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

    @property
    def _lse(self) -> Tensor | LazyTensor:
        # Two threads that compute different rows write to one tensor.
        with _LOCK:
            if self._kept_lse is None:
                self._kept_lse = self._new_lse()
            return self._kept_lse

    def _new_lse(self) -> Tensor | LazyTensor:
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

    def rows(self, batch: range, heads: range, queries: Index) -> "_ScoreRows":
        self.check()
        key_heads = key_heads_of(heads, self.call.group)
        assert key_heads is not None
        query = read(self.call.query, batch, heads, queries).to(self.dtype) * self.call.scale
        query = as_rows_of_key_heads(query, len(key_heads))
        positions = self.positions(queries).to(self.device)
        return _ScoreRows(batch, heads, queries, positions, query, key_heads)

    def compute_lse(self, rows: QueryRows, columns: Columns, buffers: Buffers) -> None:
        assert isinstance(rows, _ScoreRows)
        parts: list[Tensor] = []
        for chunk in columns:
            scores, reach = self._scores_and_reach(rows, chunk, buffers)
            base = self._base(scores.amax(dim=-1, keepdim=True))
            low = _low(chunk, reach, base)
            sums = exponential_(scores.sub_(base), low=low).sum(dim=-1, keepdim=True)
            parts.append(base + sums.log())
        if not parts:
            shape = (len(rows.batch), len(rows.heads), len(rows.queries), 1)
            parts = [torch.full(shape, -torch.inf, dtype=self.dtype, device=self.device)]
        self._remember(rows, torch.cat(parts, dim=3))

    def _base(self, top: _PerRow) -> Float[Tensor, "..."]:
        """Return what is subtracted from scores before they are exponentiated: the row maximum.

        Nothing is subtracted in rows whose pairs are all masked: their weights become 0.
        """
        return top.masked_fill(top <= lowest(self.dtype), 0.0)

    def _remember(
        self, rows: "_ScoreRows", parts: Float[Tensor, "batch heads rows parts"]
    ) -> _PerRow:
        """Join the log-sum-exp of parts of rows, and cache it; return it, 0 where it is −inf."""
        lse = parts.logsumexp(dim=-1, keepdim=True)
        if self.call.sinks is not None:
            sinks = take(self.call.sinks.to(self.dtype), 0, rows.heads)
            lse = torch.logaddexp(lse, sinks[:, None, None])
        return _finite(self.keep_lse(rows.batch, rows.heads, rows.queries, lse[..., 0])[..., None])

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
    ) -> WeightBlock:
        assert isinstance(rows, _ScoreRows)
        sizes = (len(rows.batch), len(rows.heads), len(rows.queries))
        width = sum(len(chunk.keys) for chunk in columns)
        block = WeightBlock(buffers("weights", *sizes, width))

        # 1. Weights, and parts of the statistics.
        parts: _FactParts = {fact: [] for fact in facts}
        if whole and not self.has_lse(rows.batch, rows.heads, rows.queries):
            lse = self._write_unknown(rows, columns, block, parts, buffers)
        else:
            lse = _finite(self.lse_of(rows.batch, rows.heads, rows.queries)[..., None])
            self._write_known(rows, lse, columns, block, parts, buffers)

        # 2. Statistics of all columns. So far maxima are those of scores.
        if "entropy" in parts:
            block.entropy = torch.cat(parts["entropy"], dim=3).sum(dim=3)
        if "group_max" in parts:
            block.group_max = exponential_(torch.cat(parts["group_max"], dim=3).sub_(lse))
        if parts.get("sums"):
            block.sums = torch.cat(parts["sums"], dim=3)
        return block

    def _write_known(
        self,
        rows: "_ScoreRows",
        lse: _PerRow,
        columns: Columns,
        block: WeightBlock,
        parts: _FactParts,
        buffers: Buffers,
    ) -> None:
        """Write the weights of rows whose log-sum-exp is known, a few columns at a time."""
        for chunk, weights in zip(columns, _by_chunk(block, columns), strict=True):
            scores, reach = self._scores_and_reach(rows, chunk, buffers)
            if "group_max" in parts:
                parts["group_max"].append(grouped(scores, 3, "max"))
            exponential_(scores.sub_(lse), out=weights, low=_low(chunk, reach, lse))
            if "entropy" in parts:
                parts["entropy"].append(-scores.mul_(weights).sum(dim=3, keepdim=True))
            if "sums" in parts:
                parts["sums"].append(grouped(weights, 2, "sum", ROW_GROUP))

    def _write_unknown(
        self,
        rows: "_ScoreRows",
        columns: Columns,
        block: WeightBlock,
        parts: _FactParts,
        buffers: Buffers,
    ) -> _PerRow:
        """Write the weights of rows; return their log-sum-exp, 0 where it is −inf.

        Each chunk of columns is exponentiated relative to its own row maximum, and rescaled to the
        row's log-sum-exp when the row is complete: that takes one product of queries and keys
        instead of two. Small scores are all relative to 0, and left to be divided by their row's
        sum.
        """
        chunks = _by_chunk(block, columns)
        bases: list[Tensor] = []
        totals: list[Tensor] = []
        # Without a bound of scores, as off the CPU, nothing is small. A sink or a given log-sum-exp
        # may be far above all scores.
        sinks = self.call.sinks
        small = self._has_reach and (sinks is None or float(sinks.max()) <= _SMALL)
        small = small and bool(self.lse_of(rows.batch, rows.heads, rows.queries).isnan().all())

        # 1. Exponentiate each chunk relative to its base.
        for chunk, weights in zip(columns, chunks, strict=True):
            scores, reach = self._scores_and_reach(rows, chunk, buffers)
            tops = scores
            if "group_max" in parts:
                tops = grouped(scores, 3, "max")
                parts["group_max"].append(tops)
            small = small and reach is not None and float(reach.max()) <= _SMALL
            if small:
                base = torch.zeros_like(tops[..., :1])
                exponential_(scores, out=weights, low=chunk.partial)
            else:
                base = tops.amax(dim=3, keepdim=True)
                if chunk.partial or self.biased:
                    base = self._base(base)
                exponential_(scores.sub_(base), out=weights, low=_low(chunk, reach, base))
            bases.append(base)
            totals.append(weights.sum(dim=3, keepdim=True))
            if "entropy" in parts:
                parts["entropy"].append(scores.mul_(weights).sum(dim=3, keepdim=True))

        # 2. The log-sum-exp of the row.
        base, total = torch.cat(bases, dim=3), torch.cat(totals, dim=3)
        lse = self._remember(rows, base + total.log())

        # 3. Rescale each chunk. The factor of a masked one may be infinite, and 0 · ∞ is NaN.
        shift = base - lse
        factor = exponential_(shift.clone()).masked_fill(total == 0.0, 0.0)
        block.row_sums = (total * factor).sum(dim=3)
        if small:
            block.factors = exponential_(-lse)
            if "sums" in parts:
                block.sums = _sums(block.numbers, block.factors)
        else:
            for weights, chunk_factor in zip(chunks, factor.split(1, dim=3), strict=True):
                weights.mul_(chunk_factor)
                if "sums" in parts:
                    parts["sums"].append(grouped(weights, 2, "sum", ROW_GROUP))
        if "entropy" in parts:
            # The logarithm of a weight is its exponent and the shift.
            products = torch.cat(parts["entropy"], dim=3) + shift * total
            parts["entropy"] = [-products * factor]
        return lse

    def scores(
        self, rows: QueryRows, columns: KeyColumns, buffers: Buffers
    ) -> Float[Tensor, "batch heads rows columns"]:
        """Compute scores, with scale and bias; far below all others where a pair is masked.

        Args:
            rows: the result of `rows`.
            columns: the columns.
            buffers: memory to use.
        """
        assert isinstance(rows, _ScoreRows)
        return self._scores_and_reach(rows, columns, buffers)[0]

    def _scores_and_reach(
        self, rows: "_ScoreRows", columns: KeyColumns, buffers: Buffers
    ) -> tuple[Float[Tensor, "batch heads rows columns"], _PerRow | None]:
        """Compute scores, and a bound of their absolute values in each row, if that saves time."""
        query, key = rows.query, read(self.call.key, rows.batch, rows.key_heads, columns.keys)
        key = key.to(self.dtype)
        shape = (*query.shape[:3], key.shape[2])
        scores = buffers("scores", *shape)
        write_products(query, key, scores)
        scores = scores.view(len(rows.batch), len(rows.heads), -1, shape[3])
        if self.call.bias is not None:
            scores = self._biased(scores, rows, columns.keys).clamp_min(lowest(self.dtype))
        for span in columns.partial:
            masked = ~rows.test(self.pattern, columns.keys[span])
            scores[..., span].masked_fill_(masked, lowest(self.dtype))
        return scores, self._reach(rows, columns.keys, key, buffers)

    def _reach(
        self,
        rows: "_ScoreRows",
        keys: Index,
        key: Float[Tensor, "batch key_heads columns key_dim"],
        buffers: Buffers,
    ) -> _PerRow | None:
        """Return |q| · max |k| for each row, which no |q·k| exceeds; None where it takes long."""
        sizes = rows.query.shape[:3]
        few = min(sizes[2], len(keys)) < _MANY or sizes.numel() * len(keys) < _MANY_PAIRS
        if not self._has_reach or few or not isinstance(keys, range):
            return None
        name = (rows.batch, rows.key_heads, keys)
        longest = buffers.longest_keys.get(name)
        if longest is None:
            longest = key.norm(dim=3).amax(dim=2, keepdim=True)
            buffers.longest_keys[name] = longest
        reach = rows.norms * longest
        return reach.view(len(rows.batch), len(rows.heads), -1, 1)

    @property
    def _has_reach(self) -> bool:
        """Whether to bound scores by |q| · |k|: only the CPU is slow where they underflow."""
        return not self.biased and self.device.type == "cpu"

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


@dataclass(eq=False)
class _ScoreRows(QueryRows):
    """Rows, with their queries.

    Attributes:
        query: scaled; heads that share a key head lie one after the other.
        key_heads: the key heads that they attend with.
    """

    query: Float[Tensor, "batch key_heads grouped_rows key_dim"]
    key_heads: range

    @cached_property
    def norms(self) -> Float[Tensor, "batch key_heads grouped_rows"]:
        """|q| of each row."""
        return self.query.norm(dim=3)


def _by_chunk(block: WeightBlock, columns: Columns) -> Sequence[Tensor]:
    """Return the numbers of each chunk of columns."""
    return block.numbers.split([len(chunk.keys) for chunk in columns], dim=3)


def _sums(
    numbers: Float[Tensor, "batch heads rows columns"], factors: _PerRow
) -> Float[Tensor, "batch heads row_groups columns"]:
    """Return the sum of each 16 rows, each times its factor."""
    batch, heads, rows, columns = numbers.shape
    if rows % ROW_GROUP:
        return grouped(numbers * factors, 2, "sum", ROW_GROUP)
    groups = (batch * heads, rows // ROW_GROUP, ROW_GROUP)
    sums = numbers.new_empty(*groups[:2], 1, columns)
    write_products(factors.reshape(*groups[:2], 1, ROW_GROUP), numbers.view(*groups, -1).mT, sums)
    return sums.view(batch, heads, -1, columns)


def _low(columns: KeyColumns, reach: Tensor | None, base: _PerRow) -> Sequence[slice]:
    """Return the runs of columns in which a score, less its base, may be too low for its weight."""
    if reach is None or not bool((reach + base < -lowest_exponent(base.dtype) - 1.0).all()):
        return (slice(None),)
    return columns.partial


def _finite(lse: Tensor) -> Tensor:
    return lse.masked_fill(lse <= lowest(lse.dtype), 0.0)
