"""Each position alone, through a hidden layer, against the formulas in float64."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.layers import FeedForward
from tests.layers.laws import assert_copies, in_every_way
from tests.layers.rounding import assert_close, normal, shuffle, with_gradients

BATCH, LENGTH, MODEL_DIM, HIDDEN_DIM = 2, 3, 5, 7
TERMS = MODEL_DIM + HIDDEN_DIM + BATCH * LENGTH + 20


def relu(x: Tensor) -> Tensor:
    return torch.maximum(x, torch.zeros_like(x))


def gelu(x: Tensor) -> Tensor:
    """Return x Φ(x), Φ being the normal distribution (Hendrycks & Gimpel, 2016)."""
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def gelu_tanh(x: Tensor) -> Tensor:
    """Return their approximation of it."""
    return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


PLAIN = {"relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu}
GATED = {"geglu": gelu, "geglu_tanh": gelu_tanh, "swiglu": silu}


def linear(x: Tensor, layer: nn.Linear) -> Tensor:
    result = x @ layer.weight.T
    return result if layer.bias is None else result + layer.bias


def on_paper(layer: FeedForward, x: Tensor, activation: str) -> Tensor:
    if activation in PLAIN:
        return linear(PLAIN[activation](linear(x, layer.up)), layer.down)
    assert layer.gate is not None
    gate = GATED[activation](linear(x, layer.gate))
    return linear(gate * linear(x, layer.up), layer.down)


def layer_of(*, dtype: torch.dtype = torch.float64, **options: Any) -> FeedForward:
    layer = FeedForward(MODEL_DIM, HIDDEN_DIM, **options)
    shuffle(layer)
    return layer.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", [*PLAIN, *GATED])
def test_the_formulas(activation: str, bias: bool, dtype: torch.dtype) -> None:
    exact = layer_of(activation=activation, bias=bias)
    x = normal(BATCH, LENGTH, MODEL_DIM, seed=1).requires_grad_()
    expected = with_gradients(
        on_paper(exact, x, activation), {"x": x} | dict(exact.named_parameters())
    )
    layer, x = exact.to(dtype), x.detach().to(dtype).requires_grad_()
    found = with_gradients(layer(x), {"x": x} | dict(layer.named_parameters()))
    assert found["output"].dtype == dtype
    assert_close(found, expected, terms=TERMS)
    assert ("gate.weight" in layer.state_dict()) == (activation in GATED)
    assert ("up.bias" in layer.state_dict()) == ("down.bias" in layer.state_dict()) == bias


def test_the_default_is_gelu() -> None:
    layer, x = layer_of(), normal(BATCH, LENGTH, MODEL_DIM)
    expected = on_paper(layer, x, "gelu")
    assert_close({"output": layer(x)}, {"output": expected}, terms=TERMS)


def test_positions_do_not_see_each_other() -> None:
    layer, x = layer_of(activation="swiglu"), normal(BATCH, LENGTH, MODEL_DIM)
    alone = torch.cat([layer(x[:, i : i + 1]) for i in range(LENGTH)], dim=1)
    assert_close({"output": layer(x)}, {"output": alone}, terms=TERMS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model_dim": 0}, r"^model_dim must be at least 1, got 0$"),
        ({"hidden_dim": -1}, r"^hidden_dim must be at least 1, got -1$"),
        (
            {"activation": "tanh"},
            r'^activation must be one of "relu", "gelu", "gelu_tanh", "silu", "geglu", '
            r'"geglu_tanh", "swiglu", got "tanh"$',
        ),
    ],
)
def test_refusals(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FeedForward(**({"model_dim": 5, "hidden_dim": 7} | arguments))


@pytest.mark.parametrize("activation", [*PLAIN, *GATED])
def test_repr(activation: str) -> None:
    printed = repr(FeedForward(5, 7, activation=activation))
    assert f"activation={activation}\n" in printed
    assert "(down): Linear(in_features=7, out_features=5, bias=True)" in printed


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("activation", [*PLAIN, *GATED])
def test_half_precision(activation: str, dtype: torch.dtype) -> None:
    layer = layer_of(dtype=dtype, activation=activation)
    x = normal(BATCH, LENGTH, MODEL_DIM, dtype=dtype, seed=1)
    found = layer(x)
    assert found.dtype == dtype
    expected = on_paper(layer.double(), x.double(), activation)
    assert_close({"output": found}, {"output": expected}, terms=TERMS)


@in_every_way
def test_copies(copied: Callable[[FeedForward], FeedForward]) -> None:
    layer, x = layer_of(activation="geglu_tanh"), normal(BATCH, LENGTH, MODEL_DIM)
    assert_copies(layer, copied, lambda layer: layer(x))
