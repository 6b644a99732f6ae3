"""Multi-head attention as a module: refusals, dropout, copies, state dicts, training."""

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.layers import KeyValueCache, MultiHeadAttention
from regard.patterns import causal, window
from regard.positions import Relative, Rotary, alibi, from_tensor, softcap
from tests.layers.laws import assert_copies, assert_learns, in_every_way
from tests.layers.multi_head import BATCH, KEYS, MODEL_DIM, QUERIES, layer_of
from tests.layers.rounding import normal, shuffle

# Dropout


def revealing(length: int, dropout: float) -> tuple[MultiHeadAttention, Tensor]:
    """Return a layer and an input whose output is the matrix of weights, all of them equal."""
    layer = MultiHeadAttention(length, 1, projection_bias=False, dropout=dropout).double()
    with torch.no_grad():
        layer.query.weight.zero_()
        layer.value.weight.copy_(torch.eye(length))
        layer.output.weight.copy_(torch.eye(length))
    return layer, torch.eye(length, dtype=torch.float64)


@pytest.mark.parametrize("share", [0.1, 0.4, 0.8])
def test_dropout_drops_its_share_and_keeps_the_mean(share: float) -> None:
    torch.manual_seed(0)
    length, batch = 61, 11
    layer, x = revealing(length, share)
    weights = layer.train()(x.expand(batch, -1, -1)).detach()
    count = weights.numel()
    dropped = weights == 0
    # Five standard deviations of a share of so many.
    allowed = 5 * math.sqrt(share * (1 - share) / count)
    assert abs(dropped.double().mean().item() - share) < allowed
    kept = torch.full_like(weights, 1 / (1 - share) / length)[~dropped]
    torch.testing.assert_close(weights[~dropped], kept, rtol=1e-12, atol=0)
    assert abs(weights.sum(dim=-1).mean().item() - 1) < allowed / (1 - share)
    # Another time, others.
    again = layer(x.expand(batch, -1, -1))
    assert not torch.equal(again == 0, dropped)


def test_dropout_is_off_in_evaluation() -> None:
    with_dropout, without = layer_of(dropout=0.5), layer_of()
    x = normal(BATCH, QUERIES, MODEL_DIM, seed=1)
    assert torch.equal(with_dropout.eval()(x), without(x))
    assert not torch.equal(with_dropout.train()(x), without(x))
    assert torch.equal(with_dropout.matrix(x).dense(), without.matrix(x).dense())


# As a module


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_dim": 0}, r"^model_dim must be at least 1, got 0$"),
        ({"num_heads": 0}, r"^num_heads must be at least 1, got 0$"),
        ({"num_heads": -3}, r"^num_heads must be at least 1, got -3$"),
        ({"num_key_heads": 0}, r"^num_key_heads must be at least 1, got 0$"),
        ({"num_key_heads": 2}, r"^num_heads \(3\) must be a multiple of num_key_heads, got 2$"),
        ({"num_key_heads": 6}, r"^num_heads \(3\) must be a multiple of num_key_heads, got 6$"),
        (
            {"model_dim": 16},
            r"^model_dim \(16\) must be a multiple of num_heads unless key_dim is given, "
            r"got 3 heads$",
        ),
        ({"key_dim": 0}, r"^key_dim must be at least 1, got 0$"),
        ({"value_dim": -1}, r"^value_dim must be at least 1, got -1$"),
        ({"context_dim": 0}, r"^context_dim must be at least 1, got 0$"),
        ({"dropout": 1.0}, r"^dropout must be at least 0 and below 1, got 1.0$"),
        ({"dropout": -0.1}, r"^dropout must be at least 0 and below 1, got -0.1$"),
        ({"dropout": math.nan}, r"^dropout must be at least 0 and below 1, got nan$"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(**({"model_dim": 15, "num_heads": 3} | options))


def test_a_context_goes_with_neither_cache_nor_rotary() -> None:
    x, context = normal(BATCH, QUERIES, MODEL_DIM), normal(BATCH, KEYS, MODEL_DIM)
    message = r"^a cache needs self-attention: call the layer without context$"
    for call in (layer_of().forward, layer_of().matrix):
        with pytest.raises(ValueError, match=message):
            call(x, context, cache=KeyValueCache())
    message = r"^rotary needs self-attention: call the layer without context$"
    layer = layer_of(rotary=Rotary(4))
    for call in (layer.forward, layer.matrix):
        with pytest.raises(ValueError, match=message):
            call(x, context)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "num_heads=3"),
        ({"num_key_heads": 1}, "num_heads=3, num_key_heads=1"),
        ({"num_key_heads": 3}, "num_heads=3"),
        ({"pattern": causal() & window(before=2)}, "num_heads=3, pattern=causal() & window"),
        ({"scale": 0.5}, "num_heads=3, scale=0.5"),
        ({"scale": 0.0}, "num_heads=3, scale=0.0"),
        ({"pattern": causal(), "scale": 2.0}, "num_heads=3, pattern=causal(), scale=2.0"),
        ({"bias": alibi(3)}, "(bias): Alibi("),
        ({"bias": Relative(3)}, "(bias): Relative(num_heads=3"),
        ({"bias": softcap(5.0)}, "num_heads=3"),
        ({"bias": from_tensor(torch.zeros(1, 1, 2, 2))}, "num_heads=3"),
        ({"rotary": Rotary(4)}, "(rotary): Rotary(dim=4"),
    ],
    ids=str,
)
def test_repr(options: dict[str, Any], expected: str) -> None:
    printed = repr(MultiHeadAttention(15, 3, **options))
    assert printed.startswith("MultiHeadAttention(")
    assert expected in printed


def full_layer() -> MultiHeadAttention:
    return layer_of(
        6,
        num_key_heads=2,
        key_dim=4,
        value_dim=5,
        rotary=Rotary(4),
        bias=Relative(6),
        pattern=causal() & window(before=3),
        scale=0.4,
        dropout=0.2,
    ).eval()


@in_every_way
def test_copies(copied: Callable[[MultiHeadAttention], MultiHeadAttention]) -> None:
    layer, x = full_layer(), normal(BATCH, QUERIES, MODEL_DIM, seed=1)
    assert_copies(layer, copied, lambda layer: layer(x))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_reads_weights_of_pytorch_too(
    copied: Callable[[MultiHeadAttention], MultiHeadAttention],
) -> None:
    theirs, layer = nn.MultiheadAttention(MODEL_DIM, 3), MultiHeadAttention(MODEL_DIM, 3)
    before = {name: weight.clone() for name, weight in layer.state_dict().items()}
    twin = copied(layer)
    twin.load_state_dict(theirs.state_dict())
    assert torch.equal(twin.torch_state_dict()["in_proj_weight"], theirs.in_proj_weight)
    for name, weight in layer.state_dict().items():
        assert torch.equal(weight, before[name]), name


def test_state_dicts_go_there_and_back() -> None:
    layer, x = full_layer(), normal(BATCH, QUERIES, MODEL_DIM, seed=1)
    other = full_layer()
    shuffle(other, seed=5)
    assert not torch.equal(other(x), layer(x))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))


def test_a_new_layer_has_no_preference() -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(60, 4)
    for part in (layer.query, layer.key, layer.value, layer.output):
        assert torch.equal(part.bias, torch.zeros(60))
        # Glorot's rule: uniform between ±√(6 / (in + out)), and no two numbers alike by design.
        limit = math.sqrt(6 / (60 + 60))
        assert 0.9 * limit < float(part.weight.detach().abs().max()) <= limit
        spread = limit / math.sqrt(3)
        assert abs(float(part.weight.detach().std()) - spread) < 0.1 * spread


def test_training_lowers_the_loss() -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(MODEL_DIM, 3, bias=Relative(3), pattern=causal())
    x = normal(BATCH, QUERIES, MODEL_DIM, seed=1, dtype=torch.float32)
    target = x.roll(1, dims=1)
    assert_learns(layer, lambda: layer(x), target, rate=0.3, share=0.9)
