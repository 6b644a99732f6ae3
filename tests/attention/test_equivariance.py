"""Attention by itself does not know the order of its tokens."""

import pytest
import torch
from hypothesis import given, strategies

import regard
from regard import causal, everyone
from regard.patterns import Pattern
from tests.attention.cases import case_of

BACKENDS = ["reference", "fused", "blocks"]


def attend_in_order(order: torch.Tensor, pattern: Pattern, backend: str, seed: int) -> torch.Tensor:
    """Return what self-attention gives for tokens in an order, put back into the first order."""
    case = case_of(batch=1, heads=2, queries=len(order), seed=seed)
    shuffled = (x[:, :, order] for x in (case.query, case.key, case.value))
    output = regard.attend(*shuffled, pattern=pattern, backend=backend)
    return output[:, :, order.argsort()]


@pytest.mark.parametrize("backend", BACKENDS)
@given(order=strategies.permutations(range(37)), seed=strategies.integers(0, 99))
def test_permuted_tokens_permute_the_output(backend: str, order: list[int], seed: int) -> None:
    plain = attend_in_order(torch.arange(37), everyone(), backend, seed)
    # Only the order of the sums over 37 keys differs.
    eps = torch.finfo(torch.float64).eps
    permuted = attend_in_order(torch.tensor(order), everyone(), backend, seed)
    torch.testing.assert_close(permuted, plain, rtol=4 * 37 * eps, atol=4 * 37 * eps)


@pytest.mark.parametrize("backend", BACKENDS)
def test_under_causal_the_order_counts(backend: str) -> None:
    plain = attend_in_order(torch.arange(37), causal(), backend, seed=0)
    turned = attend_in_order(torch.arange(37).flip(0), causal(), backend, seed=0)
    # The last token saw all and now sees itself alone, the first the other way round.
    assert not torch.isclose(plain, turned).all(dim=-1).any()


@pytest.mark.parametrize("backend", BACKENDS)
@given(order=strategies.permutations(range(37)))
def test_positions_bring_the_order_back(backend: str, order: list[int]) -> None:
    """Queries alone in another order, each with its position, see what they saw."""
    case = case_of(batch=1, heads=2, queries=37)
    where = torch.tensor(order)
    plain = regard.attend(case.query, case.key, case.value, pattern=causal(), backend=backend)
    moved = regard.attend(
        case.query[:, :, where],
        case.key,
        case.value,
        pattern=causal(),
        positions=where,
        backend=backend,
    )
    eps = torch.finfo(torch.float64).eps
    torch.testing.assert_close(moved, plain[:, :, where], rtol=4 * 37 * eps, atol=4 * 37 * eps)
