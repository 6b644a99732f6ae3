"""Whether what was seen is what the kernel computed: sampled rows of A @ V against its output."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.call import default_scale
from regard.patterns.pattern import Everyone
from regard.watch.caught import Caught
from regard.watch.held import Held

_ROWS = 4
"""How many rows of each head are computed again."""

_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, eq=False)
class Check:
    """How far a kernel's output is from what was seen of its call.

    Attributes:
        measured: the largest difference over the sampled rows, relative to the values that were
            added up; None if nothing was compared. A tensor, so that a GPU need not be waited for.
        tolerance: the largest that rounding explains.
        note: what is there to say instead of a difference.
        reason: why nothing was compared, and what to do about it.
    """

    measured: Float[Tensor, ""] | None
    tolerance: float = 0.0
    note: str = ""
    reason: str = ""

    @cached_property
    def gap(self) -> float | None:
        """The largest relative difference; NaN if the output is NaN; None if none was measured."""
        return None if self.measured is None else self.measured.item()

    @property
    def is_nan(self) -> bool:
        """Whether a row that was compared is NaN."""
        return self.gap is not None and math.isnan(self.gap)

    @property
    def passed(self) -> bool | None:
        """Whether the two agree; None if they were not compared."""
        # A NaN is no agreement.
        return None if self.gap is None else self.gap <= self.tolerance

    def __str__(self) -> str:
        if self.note:
            return self.note
        if self.is_nan:
            return "✗ NaN"
        return f"{'✓' if self.passed else '✗'} {self.gap:.0e}"


NOT_ASKED_FOR = Check(
    None, note="—", reason="watch the model with check=True, which is the default"
)
DROPOUT = Check(
    None, note="dropout", reason="dropout changed their outputs, call model.eval() first"
)
EMPTY = Check(torch.tensor(0.0), note="empty")
"""There is nothing in the output that could differ."""


def tolerance(dtype: torch.dtype) -> float:
    """Return how far outputs of a type may be from what they should be.

    A few roundings of the result, and what float32 loses in large scores, in which all narrower
    types are summed up.
    """
    return 4 * torch.finfo(dtype).eps + 1e-4


@torch.no_grad()
def checked(caught: Caught, held: Held, index: int) -> Check:
    """Compare some rows of a call with the kernel's output.

    Args:
        caught: what the kernel was given and returned.
        held: what was understood of it.
        index: the number of the call. Others have other rows compared.
    """
    if caught.dropout > 0:
        return DROPOUT
    if not caught.output.numel() or not caught.key.shape[2]:
        return EMPTY
    device = caught.query.device
    with torch.autocast(device.type, enabled=False):
        return _compared(caught, held, _sampled(caught.query.shape[2], index, device))


@torch.no_grad()
def checked_weights(
    weights: Float[Tensor, "batch heads queries keys"],
    value: Float[Tensor, "batch key_heads keys value_dim"],
    output: Float[Tensor, "batch heads queries value_dim"],
    index: int,
    *,
    dropped: bool,
) -> Check:
    """Compare some rows of weights that were written down with what came out.

    Args:
        weights: the weights.
        value: what they were multiplied with.
        output: what came out.
        index: the number of the call. Others have other rows compared.
        dropped: whether there was dropout.
    """
    if dropped:
        return DROPOUT
    if not output.numel() or not weights.shape[3]:
        return EMPTY
    with torch.autocast(weights.device.type, enabled=False):
        rows = _sampled(weights.shape[2], index, weights.device)
        chosen = weights[:, :, rows].to(torch.promote_types(weights.dtype, torch.float32))
        gap = _gaps(chosen, value, output[:, :, rows]).max()
    return Check(gap, tolerance(torch.promote_types(weights.dtype, output.dtype)))


def _compared(caught: Caught, held: Held, rows: Tensor | slice) -> Check:
    weights, comparable = _rows(held, caught, rows)
    gaps = _gaps(weights, caught.value, caught.output[:, :, rows])
    return Check(gaps.where(comparable, 0.0).max(), tolerance(caught.output.dtype))


def _gaps(
    weights: Float[Tensor, "batch heads rows keys"],
    value: Float[Tensor, "batch key_heads keys value_dim"],
    output: Float[Tensor, "batch heads rows value_dim"],
) -> Float[Tensor, "batch heads rows"]:
    """Return how far rows of A @ V are from an output, relative to the values that are added up."""
    value = value.to(weights.dtype)
    batch, heads, count, num_keys = weights.shape
    grouped = weights.reshape(batch, value.shape[1], -1, num_keys)
    expected = (grouped @ value).view(batch, heads, count, -1)
    size = (grouped.abs() @ value.abs()).view(batch, heads, count, -1).amax(dim=-1)
    given = output.to(weights.dtype)
    return (expected - given).abs().amax(dim=-1) / size.clamp(min=torch.finfo(size.dtype).tiny)


def _sampled(num_queries: int, index: int, device: torch.device) -> Tensor | slice:
    """Return the last row and a few others, spread out, and other ones in each call."""
    if num_queries <= _ROWS:
        return slice(None)
    others = [(index * _GOLDEN + part / (_ROWS - 1)) % 1 for part in range(_ROWS - 1)]
    chosen = {num_queries - 1, *(int(num_queries * other) for other in others)}
    return torch.tensor(sorted(chosen), device=device)


def _rows(held: Held, caught: Caught, rows: Tensor | slice) -> tuple[Tensor, Tensor]:
    """Return the weights of some rows, and which of them some key is open to."""
    query, key = caught.query[:, :, rows], caught.key
    exact = torch.promote_types(query.dtype, torch.float32)
    batch, heads, count, _ = query.shape
    scale = held.scale if held.scale is not None else default_scale(query.shape[3])
    grouped = (query.to(exact) * scale).reshape(batch, key.shape[1], -1, query.shape[3])
    scores = (grouped @ key.to(exact).mT).view(batch, heads, count, -1)
    device = query.device
    places = (
        torch.arange(batch, device=device)[:, None, None, None],
        torch.arange(heads, device=device)[:, None, None],
        held.query_positions.to(device)[rows][:, None],
        torch.arange(key.shape[2], device=device),
    )
    if held.bias is not None:
        scores = held.bias.adjust(scores, *places)
    if not isinstance(held.pattern, Everyone):
        allowed = held.pattern.test(places[0], places[2], places[3])
        scores = scores.masked_fill(~allowed, -torch.inf)
    # Where each key is as good as forbidden, kernels differ on what the row is.
    # A NaN is compared, and found.
    comparable = ~(scores.amax(dim=-1) <= torch.finfo(torch.float16).min)
    if held.sinks is None:
        return scores.softmax(dim=-1), comparable
    sinks = held.sinks.to(exact)[:, None]
    lse = torch.logaddexp(scores.logsumexp(dim=-1), sinks)
    return torch.exp(scores - lse[..., None]), comparable
