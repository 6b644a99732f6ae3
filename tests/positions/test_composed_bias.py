"""Two biases, one after the other."""

import pytest
import torch

import regard
from regard.positions import alibi, from_tensor, softcap
from regard.positions.bias import compose

QUERY, KEY, VALUE = (
    torch.randn(2, 3, 7, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 3
    for seed in range(3)
)
NUMBERS = torch.randn(2, 1, 7, 7, generator=torch.Generator().manual_seed(9), dtype=torch.float64)


def test_the_second_changes_what_the_first_made() -> None:
    bias = compose(softcap(2.0), from_tensor(NUMBERS))
    scores = QUERY @ KEY.mT / 5**0.5
    expected = torch.softmax(2 * torch.tanh(scores / 2) + NUMBERS, dim=-1)
    found = regard.AttentionMatrix(QUERY, KEY, bias=bias).dense()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(regard.attend(QUERY, KEY, VALUE, bias=bias), expected @ VALUE)


def test_order_matters() -> None:
    one = regard.AttentionMatrix(
        QUERY, KEY, bias=compose(softcap(2.0), from_tensor(NUMBERS))
    ).dense()
    other = regard.AttentionMatrix(
        QUERY, KEY, bias=compose(from_tensor(NUMBERS), softcap(2.0))
    ).dense()
    assert (one - other).abs().max() > 0.01


def test_facts_are_those_of_both() -> None:
    both = compose(alibi(3), from_tensor(NUMBERS))
    assert both is not None
    assert (both.additive, both.relative) == (True, False)
    assert (both.batch_size, both.num_heads) == (2, 3)
    assert any(tensor is NUMBERS for tensor in both.tensors)
    capped = compose(alibi(3), softcap(2.0))
    assert capped is not None
    assert (capped.additive, capped.relative, capped.batch_size) == (False, True, None)


@pytest.mark.parametrize("bias", [None, softcap(2.0)])
def test_nothing_changes_nothing(bias: object) -> None:
    assert compose(bias, None) is bias
    assert compose(None, bias) is bias
