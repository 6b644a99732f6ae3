"""Statistics of an attention matrix that are attention themselves, at the speed of the kernel.

A sum that is linear in the weights of a row is one call with other values; a sum over a column is
one call in which keys attend to queries. With p the softmax of the scores s, L the logarithm of
what a row is divided by, and r = e^(lse − L) the share that a sink, or a given L, leaves to the
keys, a weight is w_ij = r_i p_ij, and

    A V           r_i · attend(q, k, V)_i
    V A           keys attend to queries:      scores s_ij − L_i, so that
                  R_j = Σ_i w_ij = e^(lse of key j), and V A = R_j · attend(k, q, V)_j
    entropy       values = keys:  E_i = Σ_j p_ij s_ij = scale · q_i · attend(q, k, k)_i
                  H_i = −Σ_j w_ij log w_ij = r_i (L_i − E_i)
    diagonals     w_ij = e^(s_ij − L_i) of a band, by products of small blocks

One thread, 4,096 tokens, 4 heads of 64, causal, over one call of PyTorch's kernel: entropy 1.04
(by tiles 1.8), received 1.15 (1.75). Nothing is n × n, sparse patterns cost what `attend` does.

Exactness. Where keys share an offset c, scores and L have the summand scale · q_i · c, which rounds
and cancels: keys are taken relative to their mean. That would round keys much smaller than the
mean (unused rows of a cache, say), so it is done only if none is. Half precision is cast up: its
kernels are 3e-3 off. Numbers that are not finite (NaN in a masked key, which a kernel multiplies by
0) are left to tiles; so are biases, parts of the keys, and all that needs weights one by one:
strongest keys, maxima, quantiles, pooled maps.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from regard.attention import attend_with_lse
from regard.matrix.arithmetic import head_runs, key_heads_of
from regard.matrix.scores import Scores
from regard.matrix.sharded import sharded_queries
from regard.matrix.source import read
from regard.matrix.view import View
from regard.patterns import Pattern
from regard.patterns.allowed_queries import num_allowed_queries
from regard.patterns.integers import is_consecutive
from regard.patterns.pattern import Everyone
from regard.patterns.regular import Causal
from regard.patterns.remapped import remapped
from regard.progress import progressing

_NEGLIGIBLE = 4.0
"""Keys are taken relative to a mean up to so many times as long as the shortest of them: they round
by as many units in the last place."""


_BAND = 128
"""Rows of a block whose diagonals are computed by one product."""


class NeedsTiles(Exception):
    """Fused calls can't compute a statistic of these rows."""


@dataclass(frozen=True, eq=False)
class _Heads:
    """Some heads of a view, as tensors.

    Attributes:
        places: which of the view's heads.
        query: multiplied by the scale.
        key: of each key head, relative to their mean.
        shift: scale · q · mean, which all scores lack, and L too.
    """

    places: slice
    query: Float[Tensor, "batch heads queries key_dim"]
    key: Float[Tensor, "batch key_heads keys key_dim"]
    shift: Float[Tensor, "batch heads queries"]

    @property
    def group(self) -> int:
        """How many heads share a key head."""
        return self.query.shape[1] // self.key.shape[1]


class FusedRows:
    """All rows of a view, and statistics of them by fused calls. Each is computed once.

    Args:
        view: a view that `fused_rows` accepts.
        budget: maximum memory in bytes, if that suffices for one key head.
        progress: whether to show a progress bar, as for `summarize`.
    """

    def __init__(self, view: View, budget: int, progress: bool | None = False) -> None:
        assert isinstance(view.source, Scores)
        self.view = view
        self._source = view.source
        self._budget = budget
        self._progress = progress

    @cached_property
    def entropy(self) -> Float[Tensor, "batch heads queries"]:
        """−Σ w · log w of each row."""
        entropy = self.share * (self._lse - self._mean_scores)
        # Rows without keys, and those that a sink has all of.
        return entropy.masked_fill(self.share == 0.0, 0.0)

    @property
    def share(self) -> Float[Tensor, "batch heads queries"]:
        """The sum of the weights of each row."""
        return self._facts[0]

    @property
    def _lse(self) -> Float[Tensor, "batch heads queries"]:
        """L of scores that are relative to those of the mean key; 0 for rows without keys."""
        return self._facts[1]

    @property
    def _mean_scores(self) -> Float[Tensor, "batch heads queries"]:
        """E, of the same scores."""
        return self._facts[2]

    @cached_property
    def _facts(self) -> tuple[Tensor, Tensor, Tensor]:
        """The share of each row, L and E."""
        facts = torch.empty(3, *self.view.sizes[:3], dtype=self._source.dtype, device=self._device)
        for heads in self._progressing():
            mean_keys, lse = self._attend(heads, heads.key)
            total = self._total(heads, lse)
            mean_scores = (heads.query * mean_keys).sum(dim=3)
            whole = (total + heads.shift).masked_fill(self._is_empty(lse), -torch.inf)
            run = self.view.heads[heads.places]
            self._source.keep_lse(self.view.batch, run, self.view.queries, whole)
            facts[:, :, heads.places] = torch.stack([_share(lse, total), total, mean_scores])
        return facts[0], facts[1], facts[2]

    def times(
        self, values: Float[Tensor, "batch value_heads keys dim"]
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Return A @ values; fewer heads of values serve as many heads each."""
        num_heads, dim = self.view.sizes[1], values.shape[3]
        sizes = (*self.view.sizes[:3], dim)
        product = torch.empty(sizes, dtype=self._source.dtype, device=self._device)
        group = num_heads // values.shape[1]
        for heads in self._heads():
            own = torch.arange(num_heads, device=values.device)[heads.places] // group
            value = values.index_select(1, own).to(product)
            output, lse = self._attend(heads, value)
            share = _share(lse, self._total(heads, lse))
            product[:, heads.places] = output * share[..., None]
        return product

    @property
    def has_columns(self) -> bool:
        """Whether sums over columns pay.

        They need L, so for unknown L a call before theirs, while a pass over the tiles of a dense
        matrix finds both at once. Causal, one thread, over one call of PyTorch's kernel: tiles
        1.8–2.3, two calls 2.3–2.7, one call with L known 1.2–1.4.
        """
        return self._knows_lse or not isinstance(self._source.pattern, Everyone | Causal)

    @cached_property
    def _knows_lse(self) -> bool:
        """Whether L was known before any call."""
        view = self.view
        return self._source.has_lse(view.batch, view.heads, view.queries)

    @cached_property
    def column_sums(self) -> Float[Tensor, "batch heads keys"]:
        """The sum of each column."""
        batch, num_heads, _, num_keys = self.view.sizes
        sums = torch.empty(
            batch, num_heads, num_keys, dtype=self._source.dtype, device=self._device
        )
        for heads in self._progressing():
            sums[:, heads.places] = self._attend_to_queries(heads, heads.query)[1]
        return sums

    def times_rows(
        self, vectors: Float[Tensor, "batch heads vectors queries"]
    ) -> Float[Tensor, "batch heads vectors keys"]:
        """Return vectors @ A."""
        sizes = (*vectors.shape[:3], self.view.sizes[3])
        product = torch.empty(sizes, dtype=self._source.dtype, device=self._device)
        for heads in self._heads():
            values = vectors[:, heads.places].mT.to(product)
            output, sums = self._attend_to_queries(heads, values)
            product[:, heads.places] = (output * sums[..., None]).mT
        return product

    def _attend_to_queries(
        self, heads: _Heads, values: Float[Tensor, "batch heads queries dim"]
    ) -> tuple[Float[Tensor, "batch heads keys dim"], Float[Tensor, "batch heads keys"]]:
        """Let keys attend to values of queries; return the output and the sum of each column."""
        view, source = self.view, self._source
        if self._knows_lse:
            run = view.heads[heads.places]
            lse = source.lse_of(view.batch, run, view.queries) - heads.shift
            lse = lse.masked_fill(lse == -torch.inf, 0.0)
        else:
            lse = self._lse[:, heads.places]

        # One more feature takes L from the scores.
        query = torch.cat([heads.query, -lse[..., None]], dim=3)
        key = heads.key.repeat_interleave(heads.group, dim=1)
        key = torch.cat([key, torch.ones_like(key[..., :1])], dim=3)
        output, lse_of_keys = _finite(
            *attend_to_queries(key, query, values, source.call.pattern, self.positions.start)
        )
        return output, lse_of_keys.exp()

    @property
    def num_allowed_queries(self) -> Int[Tensor, "batch_or_1 1 keys"]:
        """How many rows may attend to each column."""
        pattern, num_keys = self._source.call.pattern, self.view.sizes[3]
        return num_allowed_queries(pattern, self.positions, num_keys)[:, None].to(self._device)

    def near(self, reach: int) -> Float[Tensor, "batch heads offsets"]:
        """Return the sum of the weights at each offset, key − query, from −reach to reach."""
        batch, num_heads, num_queries, num_keys = self.view.sizes
        first, device = self.positions.start, self._device
        if not -num_keys <= first <= num_keys:
            # Far from all keys: their rows would be padded as far.
            raise NeedsTiles

        sums = torch.zeros(
            batch, num_heads, 2 * reach + 1, dtype=self._source.dtype, device=self._device
        )
        offsets = torch.arange(-reach, reach + 1, device="cpu")
        allowed = self._allowed(self._query_positions[:, None] + offsets).to(device)
        # Rows before the first key and after the last have a key too, which is masked.
        before, after = max(0, reach - first), max(0, first + num_queries + reach - num_keys)
        start = first - reach + before

        for heads in self._heads():
            stop = start + num_queries + 2 * reach
            key = pad(heads.key, (0, 0, before, after))[:, :, start:stop]
            for block in range(0, num_queries, _BAND):
                rows = slice(block, min(block + _BAND, num_queries))
                height = rows.stop - rows.start
                query = heads.query[:, :, rows].unflatten(1, (-1, heads.group))
                keys = key[:, :, None, rows.start : rows.stop + 2 * reach]
                scores = (query @ keys.mT).flatten(1, 2)
                # Diagonals as columns: each row begins one further to the right.
                width = scores.shape[3]
                strides = (*scores.stride()[:2], width + 1, 1)
                band = scores.as_strided((*scores.shape[:2], height, 2 * reach + 1), strides)
                weights = (band - self._lse[:, heads.places, rows, None]).exp_()
                weights = weights.masked_fill(~allowed[:, :, rows], 0.0)
                sums[:, heads.places] += weights.sum(dim=2)
        return sums

    @property
    def first_column(self) -> Float[Tensor, "batch heads queries"]:
        """The weight on the key at position 0."""
        allowed = self._allowed(torch.zeros_like(self._query_positions)[:, None]).to(self._device)
        weights = torch.empty(self.view.sizes[:3], dtype=self._source.dtype, device=self._device)
        for heads in self._heads():
            query = heads.query.unflatten(1, (-1, heads.group))
            scores = (query @ heads.key[:, :, None, :1].mT).flatten(1, 2)[..., 0]
            weights[:, heads.places] = (scores - self._lse[:, heads.places]).exp_()
        return weights.masked_fill(~allowed[..., 0], 0.0)

    def _allowed(
        self, keys: Int[Tensor, "queries some"]
    ) -> Bool[Tensor, "batch_or_1 1 queries some"]:
        """Say which queries may attend to keys, which may lie outside of the matrix."""
        pattern, num_keys = self._source.call.pattern, self.view.sizes[3]
        batch = torch.arange(pattern.batch_size or 1, device=keys.device)[:, None, None, None]
        query = self._query_positions[:, None].expand(keys.shape)
        allowed = pattern.test(batch, query, keys.clamp(0, num_keys - 1))
        inside = (keys >= 0) & (keys < num_keys)
        return (inside & allowed).expand(len(batch), 1, *keys.shape)

    @cached_property
    def positions(self) -> range:
        """The positions of the queries.

        Raises:
            NeedsTiles: they are not consecutive.
        """
        positions = self._query_positions
        if not is_consecutive(positions):
            raise NeedsTiles
        return range(int(positions[0]), int(positions[-1]) + 1)

    @cached_property
    def _query_positions(self) -> Int[Tensor, "queries"]:
        return self._source.positions(self.view.queries)

    @property
    def _device(self) -> torch.device:
        return self._source.device

    def _heads(self) -> Iterator[_Heads]:
        """Yield the heads of the view, as many at once as the budget has memory for."""
        if self._all_heads is not None:
            yield self._all_heads
            return
        start = 0
        for run in self._runs:
            yield self._read(run, start)
            start += len(run)

    @cached_property
    def _all_heads(self) -> _Heads | None:
        """All heads, if the budget has memory for them: several statistics read them once."""
        return self._read(self._runs[0], 0) if len(self._runs) == 1 else None

    @cached_property
    def _runs(self) -> list[range]:
        """The heads of the source that are read at once."""
        batch, num_heads, num_queries, num_keys = self.view.sizes
        # Query, output and products; keys, shifted and as values.
        row = 4 * self._source.call.query.shape[3] * self._source.dtype.itemsize
        most = max(1, self._budget // max(1, batch * max(num_queries, num_keys) * row))
        return list(head_runs(self.view.heads, self._source.group, min(most, num_heads)))

    def _read(self, run: range, start: int) -> _Heads:
        """Read a run of heads, of which the first is the view's head number `start`."""
        view, source = self.view, self._source
        query = source.scaled_query(view.batch, run, view.queries)
        key_heads = key_heads_of(run, source.group)
        key = read(source.call.key, view.batch, key_heads, view.keys).to(source.dtype)

        # Relative to the mean, unless that is much longer than a key.
        mean = key.mean(dim=2, keepdim=True)
        shortest = key.norm(dim=3).amin(dim=2)[..., None, None]
        is_close = mean.norm(dim=3, keepdim=True) <= _NEGLIGIBLE * shortest
        mean = mean.masked_fill(~is_close, 0.0)
        means = mean.repeat_interleave(len(run) // len(key_heads), dim=1)

        shift = (query @ means.mT)[..., 0]
        return _Heads(slice(start, start + len(run)), query, key - mean, shift)

    def _progressing(self) -> Iterator[_Heads]:
        """Yield the heads of the view, with a progress bar."""
        batch, num_heads, num_queries, _ = self.view.sizes
        rows = batch * num_queries
        return progressing(
            self._heads(),
            "rows of attention",
            rows * num_heads,
            self._progress,
            lambda heads: rows * heads.query.shape[1],
        )

    def _attend(self, heads: _Heads, values: Tensor) -> tuple[Tensor, Tensor]:
        """Attend with values of each head or each key head."""
        key = heads.key
        if values.shape[1] != key.shape[1]:
            key = key.repeat_interleave(heads.group, dim=1)
        return _finite(
            *attend_with_lse(
                heads.query,
                key,
                values,
                pattern=self._source.call.pattern,
                scale=1.0,
                positions=self._query_positions,
            )
        )

    def _total(
        self, heads: _Heads, lse: Float[Tensor, "batch heads queries"]
    ) -> Float[Tensor, "batch heads queries"]:
        """Return L of heads, relative to the scores of the mean key; 0 for rows without keys."""
        run = self.view.heads[heads.places]
        if self._source.call.sinks is not None:
            sinks = self._source.call.sinks.to(lse)[run.start : run.stop : run.step]
            lse = torch.logaddexp(lse, sinks[:, None] - heads.shift)
        # What was given may be another; what was computed is this, but rounded.
        if self._source.call.lse is not None:
            given = read(self._source.call.lse, self.view.batch, run, self.view.queries)
            lse = torch.where(given.isnan(), lse, given.to(lse) - heads.shift)
        return lse.masked_fill(lse == -torch.inf, 0.0)

    def _is_empty(self, lse: Tensor) -> Tensor:
        """Return which rows are divided by 0."""
        return (lse == -torch.inf) & (self._source.call.sinks is None)


@runtime_checkable
class FusedReduction(Protocol):
    """A reduction that can be computed by fused calls as well.

    Attributes:
        of_columns: whether it needs sums over columns.
    """

    of_columns: ClassVar[bool]

    def fused(self, rows: FusedRows) -> Any:
        """Return the state after all rows, equal to that of tiles but for rounding.

        Raises:
            NeedsTiles: it can't be computed so.
        """
        ...


def fused_states(
    view: View, reductions: Sequence[object], budget: int, progress: bool | None
) -> list[Any] | None:
    """Return the states of reductions after all rows of a view.

    None if one of them needs tiles: the others come almost for free with these.
    """
    fused = [one for one in reductions if isinstance(one, FusedReduction) and _is_own(one)]
    if not reductions or len(fused) < len(reductions):
        return None
    rows = fused_rows(view, budget, progress)
    if rows is None:
        return None
    if any(reduction.of_columns for reduction in fused) and not rows.has_columns:
        return None
    with suppress(NeedsTiles):
        return [reduction.fused(rows) for reduction in fused]
    return None


def _is_own(reduction: FusedReduction) -> bool:
    """Return whether `fused` is that of the class whose `update` it replaces, not inherited."""
    kind = type(reduction)
    owners = {
        name: next((parent for parent in kind.__mro__ if name in vars(parent)), None)
        for name in ("fused", "update")
    }
    return owners["fused"] is owners["update"]


def fused_rows(view: View, budget: int, progress: bool | None = False) -> FusedRows | None:
    """Return the rows of a view for fused statistics, or None if they need tiles.

    Raises:
        Overwritten: a tensor was modified in place since the matrix was made.
    """
    source = view.source
    if not isinstance(source, Scores) or source.biased or not source.mask_known:
        return None
    if sharded_queries(source) is not None:
        return None
    if 0 in (*view.sizes, source.call.query.shape[3]) or not view.has_all_keys:
        return None
    # A pattern with a mask for each sequence is that of all.
    if source.call.pattern.batch_size and len(view.batch) != source.shape[0]:
        return None
    source.check()
    return FusedRows(view, budget, progress)


def attend_to_queries(
    key: Float[Tensor, "batch heads keys dim"],
    query: Float[Tensor, "batch heads queries dim"],
    values: Float[Tensor, "batch heads queries value_dim"],
    pattern: Pattern,
    first: int,
) -> tuple[Float[Tensor, "batch heads keys value_dim"], Float[Tensor, "batch heads keys"]]:
    """Let keys attend to the queries that attend to them; return the output and log-sum-exp.

    Args:
        key: of each head.
        query: multiplied by the scale.
        values: of the queries.
        pattern: which keys each query may attend to.
        first: the position of the first query.
    """
    if pattern.relative and first + query.shape[2] == key.shape[2]:
        # In reverse, keys attend to queries behind them as queries do to keys before them: by the
        # kernel's own causal mask, for example.
        reverse = (x.flip(2) for x in (key, query, values))
        output, lse = attend_with_lse(*reverse, pattern=pattern, scale=1.0, positions=0)
        return output.flip(2), lse.flip(2)
    exchanged = remapped(pattern, key=first, exchanged=True)
    return attend_with_lse(key, query, values, pattern=exchanged, scale=1.0, positions=0)


def _finite(output: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    """Return what a kernel computed.

    Raises:
        NeedsTiles: something is not finite, but the log-sum-exp of rows without keys.
    """
    if not bool((output.sum() + lse.masked_fill(lse == -torch.inf, 0.0).sum()).isfinite()):
        raise NeedsTiles
    return output, lse


def _share(lse: Tensor, total: Tensor) -> Tensor:
    """Return e^(lse − L), 0 for rows without keys."""
    return (lse - total).exp().masked_fill(lse == -torch.inf, 0.0)
