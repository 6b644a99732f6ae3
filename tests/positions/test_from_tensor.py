import pytest
import torch

from regard.positions import from_tensor


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("heads", [1, 3])
def test_values_are_looked_up_by_position(batch: int, heads: int) -> None:
    length, first_query, queries, first_key, keys = 13, 6, 5, 2, 7
    values = torch.randn(batch, heads, length, length, dtype=torch.float64)
    scores = torch.randn(2, 3, queries, keys, dtype=torch.float64)
    adjusted = from_tensor(values).adjust(
        scores,
        torch.arange(2)[:, None, None, None],
        torch.arange(3)[:, None, None],
        torch.arange(first_query, first_query + queries)[:, None],
        torch.arange(first_key, first_key + keys),
    )
    for b in range(2):
        for h in range(3):
            for i in range(queries):
                for j in range(keys):
                    added = values[b % batch, h % heads, first_query + i, first_key + j]
                    assert adjusted[b, h, i, j] == scores[b, h, i, j] + added


def test_one_head_serves_all() -> None:
    assert from_tensor(torch.zeros(2, 1, 5, 7)).num_heads is None
    assert from_tensor(torch.zeros(1, 3, 5, 7)).num_heads == 3


def test_gradient_flows_to_values() -> None:
    values = torch.randn(1, 2, 3, 5, dtype=torch.float64, requires_grad=True)
    scores = torch.randn(2, 2, 3, 5, dtype=torch.float64, requires_grad=True)
    places = (
        torch.arange(2)[:, None, None, None],
        torch.arange(2)[:, None, None],
        torch.arange(3)[:, None],
        torch.arange(5),
    )
    assert torch.autograd.gradcheck(
        lambda values, scores: from_tensor(values).adjust(scores, *places), (values, scores)
    )


def test_gradient_counts_the_pairs_that_read_a_value() -> None:
    values = torch.zeros(1, 1, 3, 5, requires_grad=True)
    batch, head = torch.arange(2)[:, None, None, None], torch.tensor(0)
    query, key = torch.tensor(2), torch.tensor([1, 4])
    from_tensor(values).adjust(torch.zeros(2, 1, 1, 2), batch, head, query, key).sum().backward()
    expected = torch.zeros(1, 1, 3, 5)
    expected[0, 0, 2, [1, 4]] = 2.0
    assert values.grad is not None
    assert torch.equal(values.grad, expected)


def test_a_position_past_the_values_is_an_error() -> None:
    zero = torch.tensor(0)
    with pytest.raises(IndexError, match="out of bounds"):
        from_tensor(torch.zeros(1, 1, 3, 5)).adjust(
            torch.zeros(1), zero, zero, torch.tensor([3]), zero
        )


@pytest.mark.usefixtures("unchecked")
def test_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"values must have 4 axes, .* \[5, 7\]"):
        from_tensor(torch.zeros(5, 7))


@pytest.mark.usefixtures("unchecked")
def test_masks_are_refused() -> None:
    with pytest.raises(ValueError, match=r"floating-point tensor, got torch\.bool; .*from_mask"):
        from_tensor(torch.ones(1, 1, 5, 7, dtype=torch.bool))
