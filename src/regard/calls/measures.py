"""Measures of heads: entropy, distance and shares of some tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from regard.calls.call import AttentionCall
from regard.calls.choose import MatrixOrCall, one_or_all_sequences
from regard.matrix import AttentionMatrix, Distance, Entropy, Offsets
from regard.matrix.distance import DistanceResult, OffsetsResult
from regard.matrix.entropy import EntropyResult
from regard.matrix.reduction import AnyReduction
from regard.matrix.source import as_tensor
from regard.progress import progressing


@dataclass(frozen=True)
class Measure:
    """A number for each head.

    Attributes:
        name: name in tables and titles.
        unit: its unit.
        about: a description.
    """

    name: str
    unit: str
    about: str


MEASURES = {
    "entropy": Measure("entropy", "nats", "entropy of its rows"),
    "distance": Measure("distance", "tokens", "mean distance from query to key"),
    "first": Measure("first token", "share", "weight on the first token"),
    "previous": Measure("previous token", "share", "weight on the previous token"),
    "itself": Measure("itself", "share", "weight on the token itself"),
}


def measure(
    what: AttentionMatrix | AttentionCall, batch: int | None = None
) -> dict[str, Float[Tensor, "*sequences heads"]]:
    """Return each of `MEASURES` for each head of a call, from one pass over its matrix.

    Args:
        what: the call, or its matrix.
        batch: which sequence; by default each, if there are several.

    Returns:
        A tensor [heads] for each name, or [batch, heads] of several sequences; NaN if undefined:
        distance, previous token and itself in cross-attention, and shares of tokens outside a slice
        of keys.

    >>> import torch, regard
    >>> x = torch.zeros(1, 2, 4, 8)
    >>> measure(regard.AttentionMatrix(x, x, pattern=regard.causal()))["first"]
    tensor([0.5208, 0.5208])
    """
    return measure_and(what, batch)[0]


REDUCTIONS = (Entropy(), Distance(), Offsets(1))
"""The reductions whose results `measured` reads."""


def measure_and(
    matrix_or_call: MatrixOrCall, batch: int | None, *reductions: AnyReduction
) -> tuple[dict[str, Tensor], tuple[Any, ...]]:
    """Return the result of `measure`, and of other reductions from the same pass."""
    matrix = one_or_all_sequences(matrix_or_call, batch)
    results = matrix.summarize(*REDUCTIONS, *reductions, progress=False)
    return measured(matrix_or_call, matrix, *results[: len(REDUCTIONS)]), results[len(REDUCTIONS) :]


def measured(
    matrix_or_call: MatrixOrCall,
    matrix: AttentionMatrix,
    entropy: EntropyResult,
    distance: DistanceResult,
    offsets: OffsetsResult,
) -> dict[str, Tensor]:
    """Return the result of `measure` from those of `REDUCTIONS` over a matrix."""
    known = {"entropy": entropy.nats.mean(dim=-1)}
    keys = as_tensor(matrix.view.keys)
    if 0 in keys:
        known["first"] = offsets.first
    if isinstance(matrix_or_call, AttentionMatrix) or matrix_or_call.kind != "cross":
        known["distance"] = distance.mean
        # Weights of keys outside the slice are unknown.
        own = matrix.view.source.positions(matrix.view.queries).cpu()
        if bool(torch.isin(own, keys).all()):
            known["itself"] = offsets.itself
        if bool(torch.isin(own[own > 0] - 1, keys).all()):
            known["previous"] = offsets.previous

    unknown = torch.full_like(known["entropy"], torch.nan)
    numbers = {name: known.get(name, unknown).float().cpu() for name in MEASURES}
    one_head = "heads" not in matrix.axes
    return {name: x[..., None] if one_head else x for name, x in numbers.items()}


def measures(
    calls: Sequence[AttentionMatrix | AttentionCall],
    batch: int | None = None,
    *,
    progress: bool | None = None,
) -> dict[str, Float[Tensor, "calls *sequences heads"]]:
    """Return each of `MEASURES` for each head of each call; NaN where a call has fewer heads.

    Args:
        calls: calls or matrices.
        batch: which sequence; by default each, if there are several.
        progress: whether to show a progress bar; see `AttentionMatrix.summarize`.

    Returns:
        A tensor [calls, heads] for each name, or [calls, batch, heads] of several sequences.

    Raises:
        ValueError: no sequence is chosen, and calls have different numbers of them.
    """
    if not len(calls):
        return {name: torch.zeros(0, 0) for name in MEASURES}
    listed = progressing(calls, "layers", len(calls), progress)
    by_call = [measure(call, batch) for call in listed]
    counts = sorted({tuple(numbers["entropy"].shape[:-1]) for numbers in by_call})
    if len(counts) > 1:
        got = ", ".join(str(count[0] if count else 1) for count in counts)
        raise ValueError(
            f"calls must have equally many sequences, got {got}: choose one with batch=0"
        )
    num_heads = max(numbers["entropy"].shape[-1] for numbers in by_call)
    return {
        name: torch.stack([_padded(numbers[name], num_heads) for numbers in by_call])
        for name in MEASURES
    }


def _padded(
    numbers: Float[Tensor, "*sequences heads"], num_heads: int
) -> Float[Tensor, "*sequences num_heads"]:
    """Return numbers for so many heads, NaN for those that a call doesn't have."""
    return pad(numbers, (0, num_heads - numbers.shape[-1]), value=torch.nan)
