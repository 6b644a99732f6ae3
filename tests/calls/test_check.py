"""Rows of several calls are compared together as if each were compared alone."""

from dataclasses import replace

import pytest
import torch

from regard import attend, causal, window
from regard.attention.call import Attention
from regard.calls import check
from regard.calls.check import ComparedRows, largest_gaps, tolerance
from regard.patterns import Pattern

HEADS, KEY_HEADS, LENGTH, DIM = 6, 2, 13, 5
ROWS = torch.tensor([3, 4, 8, 12])


def compared(seed: int, pattern: Pattern, *, wrong_by: float = 0.0) -> ComparedRows:
    """Return some rows of a call, of which one is wrong in one head."""
    chance = torch.Generator().manual_seed(seed)
    query = torch.randn(1, HEADS, LENGTH, DIM, generator=chance)
    key, value = torch.randn(2, 1, KEY_HEADS, LENGTH, DIM, generator=chance)
    output = attend(query, key, value, pattern=pattern, scale=0.5, backend="reference")
    output = output[:, :, ROWS]
    output[0, 4, 2] *= 1 + wrong_by
    call = Attention(
        query=query[:, :, ROWS],
        key=key,
        value=value,
        pattern=pattern,
        scale=0.5,
        positions=ROWS,
    )
    return ComparedRows(call, output)


@pytest.mark.parametrize("num_weights", [1, 2 * HEADS * LENGTH, 9 * HEADS * LENGTH, 1 << 24])
def test_a_wrong_row_is_that_of_its_call(num_weights: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_WEIGHTS", num_weights)
    patterns = [causal(), window(before=2), causal(), causal(), window(before=2), causal()]
    wrong_by = [0.0, 0.0, 0.3, 0.0, 0.1, 0.0]
    calls = [
        compared(seed, pattern, wrong_by=factor)
        for seed, (pattern, factor) in enumerate(zip(patterns, wrong_by, strict=True))
    ]
    gaps = [gap.item() for gap in largest_gaps(calls)]
    limit = tolerance(torch.float32)
    assert [gap > limit for gap in gaps] == [factor > 0 for factor in wrong_by]
    # The largest number of a row of A @ V is at most Σ |weight · value|.
    assert all(gap <= factor + limit for gap, factor in zip(gaps, wrong_by, strict=True))


def test_each_call_has_its_own_sinks() -> None:
    """A sink takes a share of every row; calls that have some are compared alone."""
    plain = compared(1, causal())
    with_sinks = [
        replace(plain, call=replace(plain.call, sinks=torch.full((HEADS,), sink)))
        for sink in (-100.0, 3.0)
    ]
    without, low, high = (gap.item() for gap in largest_gaps([plain, *with_sinks]))
    assert max(without, low) <= tolerance(torch.float32) < 0.1 < high
