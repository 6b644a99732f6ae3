import math

import pytest
import torch
from torch import Tensor

from regard.positions import softcap


def capped(cap: float, scores: Tensor) -> Tensor:
    zero = torch.tensor(0)
    return softcap(cap).adjust(scores, zero, zero, zero, zero)


def test_the_formula() -> None:
    scores = torch.linspace(-200, 200, 41, dtype=torch.float64)
    expected = [30.0 * math.tanh(score / 30.0) for score in scores.tolist()]
    torch.testing.assert_close(capped(30.0, scores), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_no_score_passes_the_cap(dtype: torch.dtype) -> None:
    scores = torch.tensor([-torch.inf, -60_000.0, 60_000.0, torch.inf], dtype=dtype)
    expected = torch.tensor([-50.0, -50.0, 50.0, 50.0], dtype=dtype)
    assert torch.equal(capped(50.0, scores), expected)


def test_small_scores_stay() -> None:
    scores = torch.linspace(-1, 1, 11, dtype=torch.float64)
    # tanh(x) = x - x^3 / 3 + ..., so the relative error is below (1 / cap)^2 / 3.
    torch.testing.assert_close(capped(1e6, scores), scores, rtol=1e-12, atol=0)


def test_order_is_kept() -> None:
    scores = torch.linspace(-90, 90, 101, dtype=torch.float64)
    assert (capped(50.0, scores).diff() > 0).all()


def test_gradient() -> None:
    scores = torch.linspace(-90, 90, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda scores: capped(50.0, scores), scores)


def test_equal_caps_are_equal() -> None:
    assert softcap(50.0) == softcap(50.0)
    assert softcap(50.0) != softcap(30.0)


@pytest.mark.parametrize("cap", [0.0, -1.0, math.inf, math.nan])
def test_other_caps_are_refused(cap: float) -> None:
    with pytest.raises(ValueError, match=f"cap must be positive and finite, got {cap}"):
        softcap(cap)
