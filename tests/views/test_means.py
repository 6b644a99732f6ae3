"""Means over heads, some rows at a time: the same as over the whole matrix."""

import pytest
import torch

from regard.matrix import AttentionMatrix
from regard.patterns import causal
from regard.views import means
from regard.views.means import mean_rows


def weights_of(num_heads: int, queries: int = 7, keys: int = 11) -> torch.Tensor:
    generator = torch.Generator().manual_seed(num_heads)
    scores = torch.randn(num_heads, queries, keys, dtype=torch.float64, generator=generator)
    return scores.softmax(dim=-1)


@pytest.mark.parametrize("pairs", [1, 5 * 11, 2 * 5 * 11, 2**24])
def test_means_are_those_of_the_whole_matrices(pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(means, "_PAIRS", pairs)
    heads = [weights_of(3), weights_of(5), weights_of(1)]
    matrices = [AttentionMatrix.from_weights(one[None])[0] for one in heads]
    # The last one is of one head, without an axis for it.
    matrices[-1] = matrices[-1][0]
    found: list[list[torch.Tensor]] = [[] for _ in matrices]
    rows: list[int] = []
    for block in mean_rows(matrices):
        rows += block.rows
        for one, mean in zip(found, block.means, strict=True):
            assert len(mean) == len(block.rows)
            assert 5 * mean.numel() <= max(pairs, 5 * 11)
            one.append(mean)
    assert rows == list(range(7))
    for one, expected in zip(found, heads, strict=True):
        torch.testing.assert_close(torch.cat(one), expected.mean(dim=0))


def test_what_may_not_be_looked_at_stays_nothing() -> None:
    x = torch.randn(1, 2, 6, 4, generator=torch.Generator().manual_seed(0))
    (block,) = mean_rows([AttentionMatrix(x, x, pattern=causal())[0]])
    (mean,) = block.means
    assert torch.equal(mean.triu(1), torch.zeros(6, 6))
    torch.testing.assert_close(mean.sum(dim=1), torch.ones(6))
