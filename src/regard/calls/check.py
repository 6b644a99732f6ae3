"""Compare sampled rows of A @ V with the kernel's output.

A prompt is compared when its call is seen. Calls of a generation step have few queries, and their
comparison costs mostly the overhead of operators. So equal calls become the sequences of one batch
(`largest_gaps`): those of a step (`StepChecks`), and the layers of a request in a vLLM engine.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.call import Attention, Index
from regard.internals import without_torch_function
from regard.matrix.scores import Scores
from regard.matrix.source import Buffers, KeyColumns, QueryRows
from regard.patterns import everyone
from regard.patterns.pattern import Everyone

ROWS = 4
"""Number of rows of each head that are recomputed."""

_GOLDEN = (math.sqrt(5) - 1) / 2

_WAITING_BYTES = 1 << 25
"""Size of the values that wait to be compared."""

_CACHED_BYTES = 1 << 17
"""Size of values on a CPU beyond which copies cost more than operators: a twentieth of a step."""

_WEIGHTS = 1 << 24
"""Number of weights that are computed at a time for a batch of calls."""


class Number(Protocol):
    """A number that may not be known yet: a tensor on a device, or a comparison to be made."""

    def item(self) -> float:
        """Return the number."""
        ...


@dataclass(frozen=True, eq=False)
class Check:
    """The difference between a kernel's output and A @ V.

    Attributes:
        measured: the largest difference over the sampled rows, relative to Σ |weight · value|; None
            if nothing was compared. Not a float, to avoid a GPU synchronisation.
        tolerance: the largest difference that rounding explains.
        note: text to print instead of a difference.
        reason: why nothing was compared, and what to do.
    """

    measured: Number | None
    tolerance: float = 0.0
    note: str = ""
    reason: str = ""

    @cached_property
    def gap(self) -> float | None:
        """The largest relative difference; NaN if the output is NaN; None if not compared."""
        return None if self.measured is None else self.measured.item()

    @property
    def is_nan(self) -> bool:
        """Whether a compared row is NaN."""
        return self.gap is not None and math.isnan(self.gap)

    @property
    def passed(self) -> bool | None:
        """Whether the two agree; None if they were not compared."""
        return None if self.gap is None else self.gap <= self.tolerance

    def __str__(self) -> str:
        if self.note:
            return self.note
        if self.is_nan:
            return "✗ NaN"
        return f"{'✓' if self.passed else '✗'} {self.gap:.0e}"


NOT_COMPARED = Check(None, note="—", reason="watch the model with check=True, which is the default")
DROPOUT = Check(
    None, note="dropout", reason="dropout changed their outputs, call model.eval() first"
)
EMPTY = Check(torch.tensor(0.0), note="empty")
"""The output is empty."""


def worst(checks: Sequence[Check]) -> Check:
    """Return the check that says most against a call: one that failed, or was not made."""
    for wanted in (False, None):
        for check in checks:
            if check.passed is wanted:
                return check
    return max(checks, key=lambda check: check.gap or 0.0)


def tolerance(dtype: torch.dtype) -> float:
    """Return the tolerance of outputs of a dtype.

    A few roundings of the result, and those of large scores in float32, in which narrower dtypes
    are accumulated.
    """
    return 4 * torch.finfo(dtype).eps + 1e-4


@torch.no_grad()
def check_scores(
    source: Scores,
    value: Float[Tensor, "batch key_heads keys value_dim"],
    output: Float[Tensor, "batch heads queries value_dim"],
    index: int,
    *,
    dropout: bool = False,
) -> Check:
    """Compare some rows of A @ V with the kernel's output.

    Args:
        source: the scores of the call.
        value: the values of the call.
        output: the kernel's output.
        index: the number of the call, which selects the rows.
        dropout: whether there was dropout.
    """
    if dropout:
        return DROPOUT
    num_queries, num_keys = source.shape[2:]
    if not output.numel() or not num_keys:
        return EMPTY
    chosen = sampled_rows(num_queries, index)
    gaps = row_gaps(source, value, output[:, :, _as_slice(chosen)], chosen)
    return Check(gaps.max(), tolerance(output.dtype))


@torch.no_grad()
def row_gaps(
    source: Scores,
    value: Float[Tensor, "batch key_heads keys value_dim"],
    output: Float[Tensor, "batch heads rows value_dim"],
    chosen: Index,
) -> Float[Tensor, "batch heads rows"]:
    """Return the relative difference between rows of A @ V and the kernel's output.

    Args:
        source: the scores of the call.
        value: the values of the call.
        output: the rows of the kernel's output.
        chosen: which rows these are.
    """
    batch, heads, _, num_keys = source.shape
    with torch.autocast(source.device.type, enabled=False):
        # 1. Scores.
        positions = source.positions(chosen).to(source.device)
        rows = QueryRows(range(batch), range(heads), chosen, positions)
        partial = [] if isinstance(source.call.pattern, Everyone) else [slice(0, num_keys)]
        columns = KeyColumns(range(num_keys), partial)
        scores = source.scores(rows, columns, Buffers(source.dtype, source.device))

        # 2. Kernels differ on rows whose keys are all masked by large negative numbers. NaN stays.
        comparable = ~(scores.amax(dim=-1) <= torch.finfo(torch.float16).min)

        # 3. Weights, which sum to less than 1 with a sink.
        if source.call.sinks is None:
            weights = scores.softmax(dim=-1)
        else:
            sinks = source.call.sinks.to(source.dtype)[:, None]
            lse = torch.logaddexp(scores.logsumexp(dim=-1), sinks)
            weights = torch.exp(scores - lse[..., None])
        return _gaps(weights, value, output).where(comparable, 0.0)


@torch.no_grad()
def check_weights(
    weights: Float[Tensor, "batch heads queries keys"],
    value: Float[Tensor, "batch key_heads keys value_dim"],
    output: Float[Tensor, "batch heads queries value_dim"],
    index: int,
    *,
    dropout: bool,
) -> Check:
    """Compare some rows of A @ V with the output; arguments as for `check_scores`."""
    if dropout:
        return DROPOUT
    if not output.numel() or not weights.shape[3]:
        return EMPTY
    with torch.autocast(weights.device.type, enabled=False):
        rows = _as_slice(sampled_rows(weights.shape[2], index))
        chosen = weights[:, :, rows].to(torch.promote_types(weights.dtype, torch.float32))
        gap = _gaps(chosen, value, output[:, :, rows]).max()
    return Check(gap, tolerance(torch.promote_types(weights.dtype, output.dtype)))


def _gaps(
    weights: Float[Tensor, "batch heads rows keys"],
    value: Float[Tensor, "batch key_heads keys value_dim"],
    output: Float[Tensor, "batch heads rows value_dim"],
) -> Float[Tensor, "batch heads rows"]:
    """Return the difference between rows of A @ V and an output, relative to Σ |weight · value|."""
    value = value.to(weights.dtype)
    batch, heads, count, num_keys = weights.shape
    grouped = weights.reshape(batch, value.shape[1], -1, num_keys)
    expected = (grouped @ value).view(batch, heads, count, -1)
    size = (grouped.abs() @ value.abs()).view(batch, heads, count, -1).amax(dim=-1)
    difference = (expected - output.to(weights.dtype)).abs().amax(dim=-1)
    return difference / size.clamp(min=torch.finfo(size.dtype).tiny)


def sampled_rows(num_queries: int, index: int) -> Index:
    """Return the last row and a few others, different ones in each call."""
    if num_queries <= ROWS:
        return range(num_queries)
    shares = [(index * _GOLDEN + part / (ROWS - 1)) % 1 for part in range(ROWS - 1)]
    chosen = {num_queries - 1, *(int(num_queries * share) for share in shares)}
    return torch.tensor(sorted(chosen), device="cpu")


def _as_slice(rows: Index) -> Tensor | slice:
    return slice(rows.start, rows.stop) if isinstance(rows, range) else rows


@dataclass(frozen=True, eq=False)
class ComparedRows:
    """Rows of a call that are compared with the kernel's output.

    Attributes:
        call: the call, with values; its queries are those of the rows.
        output: the rows of the kernel's output.
    """

    call: Attention
    output: Float[Tensor, "batch heads rows value_dim"]

    @property
    def batch_key(self) -> object:
        """A key of calls that can be compared as one batch."""
        call = self.call
        query, key, value = call.tensors
        kind = query.shape, key.shape, value.shape, query.dtype, self.output.dtype, query.device
        # Biases and sinks are not compared number by number.
        alone = None if call.bias is None and call.sinks is None else id(self)
        positions = call.positions
        if isinstance(positions, Tensor):
            positions = tuple(positions.tolist())
        return kind, call.scale, call.pattern, positions, alone


@torch.no_grad()
def largest_gaps(calls: Sequence[ComparedRows]) -> list[Float[Tensor, ""]]:
    """Return the largest difference of each call; equal calls are compared as one batch."""
    batches: dict[object, list[int]] = {}
    for index, rows in enumerate(calls):
        batches.setdefault(rows.batch_key, []).append(index)

    gaps: dict[int, Tensor] = {}
    # Reading a check inside a watched model must not be watched.
    with without_torch_function():
        for indices in batches.values():
            batch_gaps = _batch_gaps([calls[index] for index in indices])
            gaps.update(zip(indices, batch_gaps, strict=True))
    return [gaps[index] for index in range(len(calls))]


def _batch_gaps(batch: Sequence[ComparedRows]) -> list[Float[Tensor, ""]]:
    """Return the largest difference of each of several equal calls, some weights at a time."""
    num_sequences, heads, num_rows, num_keys = batch[0].call.sizes
    rows_at_once = max(1, _WEIGHTS // (num_sequences * heads * num_keys))
    calls_at_once = max(1, rows_at_once // num_rows)

    largest: list[Tensor] = []
    for first in range(0, len(batch), calls_at_once):
        # Calls become the sequences of one batch.
        calls = batch[first : first + calls_at_once]
        tensors = zip(*((*rows.call.tensors, rows.output) for rows in calls), strict=True)
        query, key, value, output = map(torch.cat, tensors)

        gaps: list[Tensor] = []
        for start in range(0, num_rows, rows_at_once):
            chosen = slice(start, start + rows_at_once)
            part = replace(
                batch[0].call,
                query=query[:, :, chosen],
                key=key,
                value=None,
                positions=batch[0].call.positions[chosen],
            )
            rows = range(part.num_queries)
            gaps.append(row_gaps(Scores(part), value, output[:, :, chosen], rows))
        largest += torch.cat(gaps, dim=2).view(len(calls), -1).amax(dim=1).unbind()
    return largest


class StepChecks:
    """Compares calls of few queries together: on small tensors, operators are mostly overhead.

    A check that is read earlier is made then.
    """

    def __init__(self) -> None:
        self._waiting: list[_PendingGap] = []
        self._num_bytes = 0

    def add(
        self,
        call: Attention,
        value: Float[Tensor, "batch key_heads keys value_dim"],
        output: Float[Tensor, "batch heads queries value_dim"],
    ) -> Check | None:
        """Return the check of a call, to be made later; None if there is nothing to gain.

        Args:
            call: the call.
            value: its values.
            output: the kernel's output.
        """
        num_bytes = value.numel() * value.element_size()
        most = _CACHED_BYTES if value.device.type == "cpu" else _WAITING_BYTES // 8
        is_small = 0 < call.num_queries <= ROWS and 0 < num_bytes <= most
        is_plain = call.bias is None and call.sinks is None
        if not (is_small and is_plain and isinstance(call.simple_pattern, Everyone)):
            return None

        query, key = call.query, call.key
        assert isinstance(query, Tensor)
        assert isinstance(key, Tensor)
        # The model may overwrite them.
        plain = Attention(
            query=query.detach().clone(),
            key=key.detach().clone(),
            value=value.detach().clone(),
            pattern=everyone(),
            scale=call.scale,
            positions=range(call.num_queries),
        )
        pending = _PendingGap(ComparedRows(plain, output.detach().clone()))
        self._waiting.append(pending)
        self._num_bytes += num_bytes
        if self._num_bytes > _WAITING_BYTES:
            self.run()
        return Check(pending, tolerance(output.dtype))

    def run(self) -> None:
        """Compare all calls that wait."""
        waiting, self._waiting, self._num_bytes = self._waiting, [], 0
        _compare([pending for pending in waiting if pending.gap is None])


@dataclass(eq=False)
class _PendingGap:
    """The largest difference of a call, compared when it is read or with calls of equal sizes.

    Attributes:
        rows: copies of its rows; None once they are compared.
        gap: the difference; None until they are compared.
    """

    rows: ComparedRows | None
    gap: Float[Tensor, ""] | None = None

    def item(self) -> float:
        if self.gap is None:
            _compare([self])
        assert self.gap is not None
        return self.gap.item()


def _compare(waiting: Sequence[_PendingGap]) -> None:
    """Find the largest difference of each call, and drop its rows."""
    gaps = largest_gaps([pending.rows for pending in waiting if pending.rows is not None])
    for pending, gap in zip(waiting, gaps, strict=True):
        pending.gap, pending.rows = gap, None
