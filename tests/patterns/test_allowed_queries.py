"""How many queries each key has, against the mask of the pattern."""

from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.patterns import (
    Pattern,
    causal,
    columns,
    documents,
    global_at,
    neighbours,
    padding,
    pairs,
    strided,
    window,
)
from regard.patterns.allowed_queries import num_allowed_queries
from tests.strategies import patterns

BATCHES = st.sampled_from([None, 1, 3])


@given(st.integers(1, 150), BATCHES, st.booleans(), st.data())
def test_each_allowed_pair_is_counted_once(
    num_keys: int, batch: int | None, anywhere: bool, data: st.DataObject
) -> None:
    pattern = data.draw(patterns(num_keys, batch, anywhere=anywhere))
    bounds = st.integers(-40, num_keys + 80) if anywhere else st.integers(0, num_keys - 1)
    first, last = sorted(data.draw(bounds) for _ in range(2))
    queries = range(first, last + 1)
    allowed = pattern.allows(queries, range(num_keys)).expand(batch or 1, len(queries), num_keys)
    with patch("regard.patterns.allowed_queries._TESTED", data.draw(st.sampled_from([1, 2**18]))):
        counts = num_allowed_queries(pattern, queries, num_keys)
    assert torch.equal(counts.expand(batch or 1, num_keys), allowed.sum(dim=1))


@pytest.mark.parametrize(
    "pattern",
    [
        (padding([5, 6]) & columns(every=13)) | documents(torch.arange(64) // 9),
        (padding([50, 15]) | global_at([17, 33, 60])) & strided(2),
    ],
)
def test_parts_that_are_alike_in_all_sequences(pattern: Pattern) -> None:
    """Beside others that are not: they count in each sequence."""
    counts = num_allowed_queries(pattern, range(15, 64), 64)
    assert torch.equal(counts, pattern.dense(torch.arange(15, 64), 64).sum(dim=1))


LONG = 65_537


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (causal(), LONG - torch.arange(LONG)),
        (causal() & window(before=99), (LONG - torch.arange(LONG)).clamp_max(100)),
        (causal() & strided(64), (LONG - 1 - torch.arange(LONG)) // 64 + 1),
        (
            causal() & ~pairs(queries=slice(1_000, None), keys=range(10, 20)),
            torch.where(
                (torch.arange(LONG) >= 10) & (torch.arange(LONG) < 20),
                1_000 - torch.arange(LONG),
                LONG - torch.arange(LONG),
            ),
        ),
        (
            neighbours([(i, i * i % LONG) for i in range(LONG)]),
            torch.bincount(torch.arange(LONG) ** 2 % LONG, minlength=LONG),
        ),
    ],
    ids=["causal", "window", "strided", "pairs", "neighbours"],
)
def test_many_positions(pattern: Pattern, expected: torch.Tensor) -> None:
    assert torch.equal(num_allowed_queries(pattern, range(LONG), LONG)[0], expected)
