import copy
import math
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import nn

from regard.positions import alibi
from regard.positions.alibi import Alibi


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


# As a module


class Model(nn.Module):
    """Something that a bias belongs to."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = alibi(3)
        self.linear = nn.Linear(2, 5)


def test_slopes_move_with_the_model() -> None:
    model = Model().to("meta")
    assert model.bias.slopes.device.type == model.linear.weight.device.type == "meta"
    assert model.bias.tensors[0] is model.bias.slopes
    assert alibi(3).to("meta").slopes.device.type == "meta"


@pytest.mark.parametrize(
    "cast",
    [nn.Module.half, nn.Module.bfloat16, nn.Module.double, lambda model: model.to(torch.float16)],
    ids=["half", "bfloat16", "double", "to"],
)
def test_slopes_stay_as_they_are_whatever_the_model_is_cast_to(
    cast: Callable[[nn.Module], nn.Module],
) -> None:
    model = Model()
    assert cast(model) is model
    assert model.linear.weight.dtype != torch.float32
    assert model.bias.slopes.dtype == torch.float32
    # 2^-8, 2^-4 and 2^-2 would survive; of 12 heads, the slopes 2^-0.5, ... would not.
    many = alibi(12)
    before = many.slopes.clone()
    cast(many)
    assert torch.equal(many.slopes, before)
    assert torch.equal(many.to(torch.float32).slopes, before)


def test_slopes_are_constants() -> None:
    model = Model()
    assert sorted(model.state_dict()) == ["linear.bias", "linear.weight"]
    assert [name for name, _ in model.named_parameters()] == ["linear.weight", "linear.bias"]
    assert not model.bias.slopes.requires_grad
    Model().load_state_dict(model.state_dict())


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda bias: pickle.loads(pickle.dumps(bias))],
    ids=["deepcopy", "pickle"],
)
def test_copies(copied: Callable[[Alibi], Alibi]) -> None:
    bias = alibi(5)
    twin = copied(bias)
    assert twin.slopes is not bias.slopes
    assert torch.equal(twin.slopes, bias.slopes)
    assert twin.num_heads == 5


def test_slopes_of_ones_own() -> None:
    bias = Alibi([0.5, 2.0])
    zero = torch.tensor(0)
    scores = torch.zeros(2, dtype=torch.float64)
    adjusted = bias.adjust(scores, zero, torch.arange(2), torch.tensor(3), torch.tensor(10))
    assert adjusted.tolist() == [-3.5, -14.0]
    assert repr(bias).startswith("Alibi(")
