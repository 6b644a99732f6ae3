"""A matrix that is computed from queries and keys, where and when it is looked at."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.call import Call
from regard.attention.exact import settle
from regard.matrix.exponential import exponential_
from regard.matrix.groups import grouped
from regard.matrix.index import Index, as_tensor, put, take
from regard.matrix.source import Block, Buffers, Columns, Fact, Rows, lowest
from regard.patterns import Pattern
from regard.positions.given import Given
from regard.versions import Overwritten, Versions

_Found = dict[Fact, list[Tensor]]
"""What was found out about rows, a few columns at a time."""


class Scores:
    """Queries and keys, and the log-sum-exp of the rows that were needed so far; see `Source`.

    Args:
        call: the call of attention; its values are not looked at.
        lse: the logarithm of what each row is divided by, as far as it is known; NaN elsewhere.
        sinks: a score for each head that takes its share of every row and isn't looked at.
    """

    def __init__(
        self,
        call: Call,
        lse: Float[Tensor, "batch heads queries"] | None,
        sinks: Float[Tensor, "heads"] | None,
    ) -> None:
        settle()
        self.call = call = _countable(call)
        parts = [("query", call.query), ("key", call.key)]
        parts += [("bias", tensor) for tensor in (call.bias.tensors if call.bias else ())]
        parts += [("mask", tensor) for leaf in call.pattern.leaves() for tensor in leaf.tensors]
        self._versions = Versions(parts)
        self.sinks = None if sinks is None else sinks.to(self.dtype)
        # A matrix that is made in inference mode may be looked at outside of it.
        with torch.inference_mode(False):
            if lse is None:
                # Rows without keys are never computed.
                unknown = torch.nan if call.num_keys else -torch.inf
                lse = torch.full(self.shape[:3], unknown, dtype=self.dtype, device=self.device)
                if self.sinks is not None:
                    lse = torch.logaddexp(lse, self.sinks[:, None])
            self.lse = lse.detach().to(self.dtype, copy=True)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        call = self.call
        return call.batch, call.num_heads, call.num_queries, call.num_keys

    @property
    def dtype(self) -> torch.dtype:
        return self.call.lse_dtype

    @property
    def device(self) -> torch.device:
        return self.call.query.device

    @property
    def pattern(self) -> Pattern:
        return self.call.simple_pattern

    @property
    def biased(self) -> bool:
        return self.call.bias is not None

    def positions(self, queries: Index) -> Int[Tensor, "rows"]:
        if self.call.listed_positions is not None:
            return self.call.listed_positions[as_tensor(queries)]
        assert self.call.first_position is not None
        return as_tensor(queries) + self.call.first_position

    def head_runs(self, heads: range, most: int) -> Iterator[range]:
        """Cut heads into runs in which each key head serves equally many of them."""
        while heads:
            sizes = range(min(most, len(heads)), 0, -1)
            size = next(size for size in sizes if self._key_heads(heads[:size]) is not None)
            yield heads[:size]
            heads = heads[size:]

    def _key_heads(self, heads: range) -> range | None:
        """Return the key heads of a run of heads, or None if they aren't used equally often."""
        used = [head // self.call.group for head in heads]
        distinct = sorted(set(used))
        step = distinct[1] - distinct[0] if len(distinct) > 1 else 1
        found = range(distinct[0], distinct[-1] + 1, step)
        group = len(heads) // len(found)
        return found if used == [head for head in found for _ in range(group)] else None

    def knows(self, batch: range, heads: range, queries: Index) -> bool:
        """Say whether the log-sum-exp of these rows is known."""
        self._check_unmodified()
        return not bool(self.lse_of(batch, heads, queries).isnan().any())

    def _check_unmodified(self) -> None:
        """Raise `Overwritten` if the log-sum-exp is that of other numbers than there are now."""
        if (name := self._versions.modified()) is not None:
            raise Overwritten(
                f"{name} was modified in place after the attention matrix was made from it: "
                f"make the matrix from {name}.clone()"
            )

    def lse_of(
        self, batch: range, heads: range, queries: Index
    ) -> Float[Tensor, "some_batch some_heads rows"]:
        """Return the logarithm of what each row is divided by, NaN where it isn't known yet."""
        return _at(self.lse, batch, heads, queries)

    def rows(self, batch: range, heads: range, queries: Index) -> "_Rows":
        self._check_unmodified()
        key_heads = self._key_heads(heads)
        assert key_heads is not None
        query = _at(self.call.query, batch, heads, queries).to(self.dtype) * self.call.scale
        # Heads that share a key head become further rows, so that no key is repeated.
        size = len(heads) // len(key_heads) * len(queries)
        query = query.reshape(len(batch), len(key_heads), size, query.shape[-1])
        key = take(take(self.call.key, 0, batch), 1, key_heads)
        positions = self.positions(queries).to(self.device)
        lse = self.lse_of(batch, heads, queries)[..., None]
        pairs: list[tuple[Tensor, Tensor]] = []
        if self.device.type == "cpu" and len(batch) * len(key_heads) <= torch.get_num_threads():
            pairs = [
                (q, k)
                for qs, ks in zip(query, key, strict=True)
                for q, k in zip(qs, ks, strict=True)
            ]
        return _Rows(batch, heads, queries, positions, query, key, pairs, _finite(lse))

    def learn(self, rows: Rows, columns: Sequence[Columns], buffers: Buffers) -> None:
        """Find the log-sum-exp of rows."""
        assert isinstance(rows, _Rows)
        found: list[Tensor] = []
        for some in columns:
            scores = self._scores(rows, some, buffers)
            base = self._base(scores.amax(dim=-1, keepdim=True))
            found.append(base + exponential_(scores.sub_(base)).sum(dim=-1, keepdim=True).log())
        nothing = torch.full_like(rows.lse, -torch.inf)
        self._remember(rows, torch.cat(found, dim=3) if found else nothing)

    def _base(self, top: Float[Tensor, "batch heads rows 1"]) -> Float[Tensor, "..."]:
        """Return what to take off scores before they are exponentiated: their largest.

        Rows in which all pairs are forbidden keep scores so low that their weights are 0.
        """
        return top.masked_fill(top <= lowest(self.dtype), 0.0)

    def _remember(self, rows: "_Rows", parts: Float[Tensor, "batch heads rows parts"]) -> None:
        """Join the log-sum-exp of parts of rows, and keep it."""
        lse = parts.logsumexp(dim=-1, keepdim=True)
        if self.sinks is not None:
            lse = torch.logaddexp(lse, take(self.sinks, 0, rows.heads)[:, None, None])
        # What was given stays, beside a row of NaN too.
        known = self.lse_of(rows.batch, rows.heads, rows.queries)[..., None]
        lse = torch.where(known.isnan(), lse, known)
        rows.lse = _finite(lse)
        for row, one in zip(rows.batch, lse[..., 0], strict=True):
            put(take(self.lse[row], 0, rows.heads), 1, rows.queries, one)

    def block(
        self,
        rows: Rows,
        columns: Sequence[Columns],
        facts: Collection[Fact],
        buffers: Buffers,
        *,
        whole: bool,
    ) -> Block:
        assert isinstance(rows, _Rows)
        widths = [len(some.keys) for some in columns]
        weights = buffers("weights", *rows.lse.shape[:3], sum(widths))
        parts = weights.split(widths, dim=3)
        found: _Found = {"entropy": [], "peaks": [], "sums": []}
        block = Block(weights)
        if whole and not self.knows(rows.batch, rows.heads, rows.queries):
            block.row_sums = self._write_unknown(rows, columns, parts, facts, found, buffers)
        else:
            self._write_known(rows, columns, parts, facts, found, buffers)
        if "entropy" in facts:
            block.entropy = torch.cat(found["entropy"], dim=3).sum(dim=3)
        if "peaks" in facts:
            block.peaks = exponential_(torch.cat(found["peaks"], dim=3).sub_(rows.lse))
        if "sums" in facts:
            block.sums = torch.cat(found["sums"], dim=3)
        return block

    def _write_known(
        self,
        rows: "_Rows",
        columns: Sequence[Columns],
        parts: Sequence[Tensor],
        facts: Collection[Fact],
        found: _Found,
        buffers: Buffers,
    ) -> None:
        """Write the weights of rows whose log-sum-exp is known, a few columns at a time."""
        for some, part in zip(columns, parts, strict=True):
            scores = self._scores(rows, some, buffers)
            if "peaks" in facts:
                found["peaks"].append(grouped(scores, 3, "max"))
            exponential_(scores.sub_(rows.lse), out=part)
            if "entropy" in facts:
                found["entropy"].append(-scores.mul_(part).sum(dim=3, keepdim=True))
            if "sums" in facts:
                found["sums"].append(grouped(part, 2, "sum"))

    def _write_unknown(
        self,
        rows: "_Rows",
        columns: Sequence[Columns],
        parts: Sequence[Tensor],
        facts: Collection[Fact],
        found: _Found,
        buffers: Buffers,
    ) -> Float[Tensor, "batch heads rows"]:
        """Write the weights of rows, find their log-sum-exp, and return their sums.

        Each few columns are exponentiated relative to their own largest score, and brought to one
        measure when all are there: that takes one product of queries and keys instead of two.
        """
        bases: list[Tensor] = []
        totals: list[Tensor] = []
        for some, part in zip(columns, parts, strict=True):
            scores = self._scores(rows, some, buffers)
            peaks = scores
            if "peaks" in facts:
                peaks = grouped(scores, 3, "max")
                found["peaks"].append(peaks)
            base = peaks.amax(dim=3, keepdim=True)
            if some.doubtful or self.biased:
                base = self._base(base)
            exponential_(scores.sub_(base), out=part)
            bases.append(base)
            totals.append(part.sum(dim=3, keepdim=True))
            if "entropy" in facts:
                found["entropy"].append(scores.mul_(part).sum(dim=3, keepdim=True))
        base, total = torch.cat(bases, dim=3), torch.cat(totals, dim=3)
        self._remember(rows, base + total.log())

        shift = base - rows.lse
        factor = exponential_(shift.clone()).masked_fill(total == 0.0, 0.0)
        for part, one in zip(parts, factor.split(1, dim=3), strict=True):
            part.mul_(one)
            if "sums" in facts:
                found["sums"].append(grouped(part, 2, "sum"))
        if "entropy" in facts:
            # The logarithm of a weight is what was exponentiated, and the shift.
            products = torch.cat(found["entropy"], dim=3) + shift * total
            found["entropy"] = [-products * factor]
        return (total * factor).sum(dim=3)

    def _scores(
        self, rows: "_Rows", columns: Columns, buffers: Buffers
    ) -> Float[Tensor, "batch heads rows columns"]:
        shape = (*rows.query.shape[:3], len(columns.keys))
        scores = buffers("scores", *shape)
        if rows.pairs:
            for (query, key), out in zip(rows.pairs, scores.view(-1, *shape[2:]), strict=True):
                torch.mm(query, take(key, 0, columns.keys).to(self.dtype).T, out=out)
        else:
            key = take(rows.key, 2, columns.keys).to(self.dtype)
            for one_query, one_key, out in zip(rows.query, key, scores, strict=True):
                torch.bmm(one_query, one_key.mT, out=out)
        scores = scores.view(len(rows.batch), len(rows.heads), -1, shape[3])
        if self.call.bias is None and not columns.doubtful:
            return scores

        if self.call.bias is not None:
            scores = self._biased(scores, rows, columns.keys).clamp_min(lowest(self.dtype))
        for span in columns.doubtful:
            forbidden = ~rows.test(self.pattern, columns.keys[span])
            scores[..., span].masked_fill_(forbidden, lowest(self.dtype))
        return scores

    def _biased(self, scores: Tensor, rows: Rows, keys: Index) -> Tensor:
        assert self.call.bias is not None
        batch, head = (as_tensor(x).to(self.device) for x in (rows.batch, rows.heads))
        key = as_tensor(keys).to(self.device)
        places = (batch[:, None, None, None], head[:, None, None], rows.positions[:, None], key)
        return self.call.bias.adjust(scores, *places)

    def allowed(
        self, rows: Rows, keys: Index
    ) -> Bool[Tensor, "some_batch heads_or_1 rows some_columns"]:
        found = rows.test(self.pattern, keys)
        if self.call.bias is None:
            return found
        shape = (len(rows.batch), len(rows.heads), *found.shape[2:])
        zeros = torch.zeros(shape, dtype=self.dtype, device=self.device)
        # What is forbidden by −inf has it whatever the score.
        return found & ~(self._biased(zeros, rows, keys) == -torch.inf)


@dataclass(eq=False)
class _Rows(Rows):
    """Rows with what it takes to compute them.

    Attributes:
        query: scaled; heads that share a key head lie one after the other.
        key: of these heads, all of it.
        pairs: the same, head by head, where there are too few of them for the threads: a product
            alone is shared out among the threads, several are dealt out to them.
        lse: the logarithm of what each row is divided by, 0 where that is −inf.
    """

    query: Float[Tensor, "batch key_heads grouped_rows key_dim"]
    key: Float[Tensor, "batch key_heads keys key_dim"]
    pairs: list[tuple[Tensor, Tensor]]
    lse: Float[Tensor, "batch heads rows 1"]


def _countable(call: Call) -> Call:
    """Return a call whose tensors count what is written to them: those of inference mode don't."""
    with torch.inference_mode(False):
        if call.query.is_inference() or call.key.is_inference():
            call = replace(call, query=call.query.clone(), key=call.key.clone())
        if isinstance(call.bias, Given) and call.bias.values.is_inference():
            call = replace(call, bias=replace(call.bias, values=call.bias.values.clone()))
    return call


def _finite(lse: Tensor) -> Tensor:
    return lse.masked_fill(lse <= lowest(lse.dtype), 0.0)


def _at(tensor: Tensor, batch: range, heads: range, sequence: Index) -> Tensor:
    return take(take(take(tensor, 0, batch), 1, heads), 2, sequence)
