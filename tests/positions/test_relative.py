import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, strategies
from transformers.models.t5.configuration_t5 import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from regard.positions import Relative
from regard.positions.relative import bucket_of

LAYOUTS = [(32, 128), (16, 64), (64, 512), (10, 17), (4, 3)]


def bucket_in_fractions(
    distance: int, num_buckets: int, max_distance: int, bidirectional: bool
) -> int:
    """Find the bucket of one distance in exact arithmetic."""
    start = 0
    if bidirectional:
        num_buckets //= 2
        start = num_buckets if distance > 0 else 0
        steps = abs(distance)
    else:
        steps = max(-distance, 0)
    exact = num_buckets // 2
    if steps < exact:
        return start + steps
    coarse = num_buckets - exact
    # Bucket exact + m starts where steps / exact = (max_distance / exact)^(m / coarse).
    m = 0
    while m + 1 < coarse and Fraction(steps, exact) ** coarse >= (
        Fraction(max_distance, exact) ** (m + 1)
    ):
        m += 1
    return start + exact + m


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), LAYOUTS)
def test_buckets_in_exact_arithmetic(
    num_buckets: int, max_distance: int, bidirectional: bool
) -> None:
    distances = range(-max_distance - 20, max_distance + 20)
    expected = [
        bucket_in_fractions(distance, num_buckets, max_distance, bidirectional)
        for distance in distances
    ]
    buckets = bucket_of(
        torch.tensor(distances),
        num_buckets=num_buckets,
        max_distance=max_distance,
        bidirectional=bidirectional,
    )
    assert buckets.tolist() == expected


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), LAYOUTS)
def test_buckets_of_t5(num_buckets: int, max_distance: int, bidirectional: bool) -> None:
    distance = torch.arange(-3 * max_distance, 3 * max_distance)
    expected = T5Attention._relative_position_bucket(
        distance, bidirectional, num_buckets, max_distance
    )
    buckets = bucket_of(
        distance,
        num_buckets=num_buckets,
        max_distance=max_distance,
        bidirectional=bidirectional,
    )
    assert torch.equal(buckets, expected)


@given(strategies.integers(-(2**40), 2**40), strategies.booleans())
def test_buckets_stay_in_range(distance: int, bidirectional: bool) -> None:
    bucket = bucket_of(torch.tensor(distance), bidirectional=bidirectional)
    assert 0 <= bucket.item() < 32


@pytest.mark.parametrize("is_decoder", [False, True])
def test_bias_of_t5(is_decoder: bool) -> None:
    heads, queries, keys, cached = 3, 7, 61, 54
    config = T5Config(
        d_model=12,
        d_kv=4,
        num_heads=heads,
        relative_attention_num_buckets=10,
        relative_attention_max_distance=37,
        is_decoder=is_decoder,
    )
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = Relative(heads, num_buckets=10, max_distance=37, bidirectional=not is_decoder)
    torch.nn.init.normal_(theirs.relative_attention_bias.weight)
    ours.load_state_dict({"table": theirs.relative_attention_bias.weight})
    adjusted = ours.adjust(
        torch.zeros(1, heads, queries, keys),
        torch.tensor(0),
        torch.arange(heads)[:, None, None],
        torch.arange(cached, cached + queries)[:, None],
        torch.arange(keys),
    )
    assert torch.equal(adjusted, theirs.compute_bias(queries, keys, past_seen_tokens=cached))


class Adjusted(torch.nn.Module):
    """Call `adjust` as `forward`, so that the table can be passed in."""

    def __init__(self, bias: Relative) -> None:
        super().__init__()
        self.bias = bias

    def forward(self, *arguments: torch.Tensor) -> torch.Tensor:
        return self.bias.adjust(*arguments)


def test_gradient_of_the_table() -> None:
    heads, length = 2, 11
    module = Adjusted(Relative(heads, num_buckets=8, max_distance=5))
    arguments = (
        torch.randn(1, heads, length, length, dtype=torch.float64),
        torch.tensor(0),
        torch.arange(heads)[:, None, None],
        torch.arange(length)[:, None],
        torch.arange(length),
    )
    table = torch.randn(8, heads, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda table: torch.func.functional_call(module, {"bias.table": table}, arguments), table
    )


def test_gradient_counts_the_pairs_of_a_bucket() -> None:
    bias = Relative(1, num_buckets=4, max_distance=2)
    zero, position = torch.tensor(0), torch.arange(3)
    bias.adjust(torch.zeros(3, 3), zero, zero, position[:, None], position).sum().backward()
    assert bias.table.grad is not None
    # Buckets: no distance, before, never used, after.
    assert bias.table.grad.flatten().tolist() == [3.0, 3.0, 0.0, 3.0]


def test_a_new_table_prefers_nothing() -> None:
    zero = torch.tensor(0)
    scores = torch.randn(5)
    assert torch.equal(Relative(1).adjust(scores, zero, zero, zero, torch.arange(5)), scores)


def test_it_says_what_it_is() -> None:
    assert repr(Relative(3)) == (
        "Relative(num_heads=3, num_buckets=32, max_distance=128, bidirectional=True)"
    )


def test_the_last_bucket_starts_before_max_distance() -> None:
    # The last of n coarse buckets starts at exact * (max_distance / exact)^((n - 1) / n).
    start = math.ceil(8 * (128 / 8) ** (7 / 8))
    buckets = bucket_of(-torch.arange(200))
    assert buckets.tolist().index(15) == start


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": 0}, "num_heads must be at least 1, got 0"),
        (
            {"num_heads": 3, "num_buckets": 7},
            "num_buckets must be even when bidirectional, got 7",
        ),
        (
            {"num_heads": 3, "num_buckets": 2},
            "num_buckets must be at least 4 when bidirectional is True, got 2",
        ),
        (
            {"num_heads": 3, "num_buckets": 1, "bidirectional": False},
            "num_buckets must be at least 2 when bidirectional is False, got 1",
        ),
        (
            {"num_heads": 3, "max_distance": 8},
            "max_distance must be greater than 8, .*, got 8",
        ),
    ],
)
def test_other_layouts_are_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Relative(**arguments)
