import math

import pytest
import torch

from regard.positions import alibi


@pytest.mark.parametrize("num_heads", [1, 2, 4, 8, 16, 32])
def test_slopes_of_a_power_of_two(num_heads: int) -> None:
    expected = [2 ** (-8 * (head + 1) / num_heads) for head in range(num_heads)]
    torch.testing.assert_close(alibi(num_heads).slopes, torch.tensor(expected))


@pytest.mark.parametrize(
    ("num_heads", "exponents"),
    [
        (3, [4, 8, 2]),
        (5, [2, 4, 6, 8, 1]),
        (7, [2, 4, 6, 8, 1, 3, 5]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_slopes_between_powers_of_two(num_heads: int, exponents: list[float]) -> None:
    expected = torch.tensor([2**-exponent for exponent in exponents])
    torch.testing.assert_close(alibi(num_heads).slopes, expected)


@pytest.mark.parametrize("num_heads", range(1, 41))
def test_slopes_are_one_for_each_head_and_distinct(num_heads: int) -> None:
    bias = alibi(num_heads)
    assert bias.num_heads == num_heads
    assert len(set(bias.slopes.tolist())) == num_heads
    assert all(0 < slope < 1 for slope in bias.slopes.tolist())


def test_scores_fall_with_distance_on_both_sides() -> None:
    heads, queries, keys, first_query = 2, 5, 11, 6
    scores = torch.randn(1, heads, queries, keys, dtype=torch.float64)
    adjusted = alibi(heads).adjust(
        scores,
        torch.tensor(0),
        torch.arange(heads)[:, None, None],
        torch.arange(first_query, first_query + queries)[:, None],
        torch.arange(keys),
    )
    for head, slope in enumerate([1 / 16, 1 / 256]):
        for i in range(queries):
            for j in range(keys):
                expected = scores[0, head, i, j].item() - slope * abs(first_query + i - j)
                assert math.isclose(adjusted[0, head, i, j].item(), expected, abs_tol=1e-12)


def test_far_distances_survive_half_precision() -> None:
    zero = torch.tensor(0)
    query, key = torch.tensor(100_001), torch.tensor(0)
    # The slope is 1 / 256. In bfloat16 the distance would be 100,352, and the result -2.
    adjusted = alibi(1).adjust(torch.tensor(390.0, dtype=torch.bfloat16), zero, zero, query, key)
    assert adjusted.item() == pytest.approx(390 - 100_001 / 256, rel=2**-8)


def test_the_device_of_the_slopes_can_be_chosen() -> None:
    assert alibi(3, device="meta").tensors[0].device.type == "meta"


def test_no_heads_are_refused() -> None:
    with pytest.raises(ValueError, match="num_heads must be at least 1, got 0"):
        alibi(0)
