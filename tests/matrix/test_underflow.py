"""Weights too small for their type are 0."""

import math

import pytest
import torch

from regard import AttentionMatrix, causal
from regard.matrix import Entropy, Received, TopKeys
from regard.matrix.arithmetic import exponential_
from tests.matrix.cases import tiny


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("size", [1.0, 2.0, 2.5, 3.0, 6.0, 30.0])
def test_weights_of_any_size(size: float, known: bool) -> None:
    torch.manual_seed(0)
    query, key = (size * torch.randn(1, 2, 331, 16) for _ in range(2))
    scores = query.double() @ key.double().mT / 4
    scores.masked_fill_(torch.ones(331, 331).triu_(1).bool(), -torch.inf)
    exact = scores.softmax(dim=-1)
    lse = scores.logsumexp(dim=-1)

    matrix = AttentionMatrix(query, key, pattern=causal(), lse=lse.float() if known else None)
    entropy, received, top = matrix.summarize(Entropy(), Received(), TopKeys(3))
    # Rounding of a score is relative to its largest terms.
    off = 2e-6 * float(query.norm(dim=-1).max() * key.norm(dim=-1).max()) + 1e-6
    weights = matrix.dense().double()
    assert bool(((weights - exact).abs() <= off * exact + 1e-37).all())
    assert bool((weights[exact == 0] == 0).all())
    assert torch.allclose(entropy.nats.double(), torch.special.entr(exact).sum(-1), atol=10 * off)
    assert torch.allclose(received.total.double(), exact.sum(dim=2), atol=331 * off)
    strongest = exact.topk(3, dim=-1).values
    assert torch.allclose(top.weights.double(), strongest, rtol=2 * off, atol=1e-37)


@pytest.mark.parametrize("sink", [-200.0, 0.0, 60.0, 92.0])
@pytest.mark.parametrize("given", [False, True])
def test_a_log_sum_exp_far_from_small_scores(sink: float, given: bool) -> None:
    """A sink, or the given log-sum-exp of one row, leaves a share that float32 still has."""
    torch.manual_seed(0)
    query, key = (2.0 * torch.randn(1, 1, 131, 16) for _ in range(2))
    scores = query.double() @ key.double().mT / 4
    lse = scores.logsumexp(dim=-1)
    sunk = torch.logaddexp(lse, torch.tensor(sink).double())
    if given:
        exact = scores.softmax(dim=-1)
        exact[..., 7, :] = (scores - sunk[..., None])[..., 7, :].exp()
        some = torch.full((1, 1, 131), torch.nan)
        some[..., 7] = sunk[..., 7].float()
        matrix = AttentionMatrix(query, key, lse=some)
    else:
        exact = (scores - sunk[..., None]).exp()
        matrix = AttentionMatrix(query, key, sinks=torch.tensor([sink]))
    received, top = matrix.summarize(Received(), TopKeys(3))
    assert torch.allclose(received.total.double(), exact.sum(dim=2), rtol=1e-4, atol=2e-36)
    strongest = exact.topk(3, dim=-1).values
    assert torch.allclose(top.weights.double(), strongest, rtol=1e-4, atol=1e-37)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_are_0_below_a_bound_that_tests_allow(dtype: torch.dtype) -> None:
    bound = math.log(torch.finfo(dtype).tiny) + 0.25
    below, above = (torch.tensor([bound + step], dtype=dtype) for step in (-1e-3, 3e-3))
    assert exponential_(below.clone()).item() == 0.0
    assert exponential_(above.clone()).item() == pytest.approx(math.exp(above.item()), rel=1e-4)
    # A weight that is made 0 is off by itself.
    assert math.exp(bound + 2e-3) < tiny(dtype)


def test_the_strongest_keys_are_in_the_last_group_which_is_smaller() -> None:
    weights = torch.zeros(1, 1, 2, 64 * 9 + 5)
    weights[0, 0, :, -1] = torch.tensor([1.0, 0.75])
    weights[0, 0, 1, 3] = 0.25
    found = AttentionMatrix.from_weights(weights)[0, 0].top(2)
    assert found.keys.tolist() == [[580, -1], [580, 3]]
    assert found.weights.tolist() == [[1.0, 0.0], [0.75, 0.25]]
