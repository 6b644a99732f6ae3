"""Some rows at a time: the same results as in one pass, and the means over heads."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from regard.matrix import AttentionMatrix, Distance, Entropy, Offsets, Pool, TopKeys
from regard.patterns import Pattern, causal, everyone, global_at, window
from regard.views.row_pass import RowPass
from tests.capture.models import random

REDUCTIONS = (Entropy(), Distance(), Offsets(1), TopKeys(3), Pool(7))


def matrix(pattern: Pattern, dtype: torch.dtype = torch.float64) -> AttentionMatrix:
    query, key = random(2, 6, 331, 8).to(dtype), random(2, 3, 331, 8, seed=1).to(dtype)
    return AttentionMatrix(query, key, pattern=pattern)


def in_rows(found: RowPass, *sizes: int) -> Tensor:
    starts = torch.tensor((0, *sizes)).cumsum(0).tolist()
    ends = pairwise(starts)
    return torch.cat([found.update(range(start, stop)) for start, stop in ends])


@pytest.mark.parametrize(
    "pattern",
    [
        everyone(),
        causal(),
        causal() & window(before=20),
        window(before=9) | global_at([0, 200]),
    ],
)
def test_as_in_one_pass(pattern: Pattern) -> None:
    whole = matrix(pattern)[1]
    found = RowPass(matrix(pattern)[1], REDUCTIONS)
    means = in_rows(found, 100, 1, 30, 200)
    torch.testing.assert_close(means, whole.dense().mean(dim=0), rtol=0, atol=1e-14)
    for one, expected in zip(found.finish(), whole.summarize(*REDUCTIONS), strict=True):
        assert one.labels == expected.labels
        for name, values in vars(expected).items():
            if isinstance(values, Tensor):
                torch.testing.assert_close(getattr(one, name), values, rtol=1e-9, atol=1e-12)


def test_a_slice_of_one_head() -> None:
    part = matrix(causal())[0, 4, 50:150, 20:90]
    found = RowPass(part, [TopKeys(2)])
    means = in_rows(found, 60, 40)
    torch.testing.assert_close(means, part.dense(), rtol=0, atol=1e-14)
    (top,), (expected,) = found.finish(), part.summarize(TopKeys(2))
    assert torch.equal(top.keys, expected.keys)
