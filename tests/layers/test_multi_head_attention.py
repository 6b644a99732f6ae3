"""Against the definition written out, and against itself with the same weights arranged otherwise.

`test_torch_weights.py` holds it against PyTorch's layer.
"""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.layers import MultiHeadAttention
from regard.patterns import causal
from regard.positions import Bias, Relative, Rotary, alibi, from_tensor, softcap
from tests.elsewhere import Elsewhere
from tests.layers.multi_head import (
    BATCH,
    CONTEXT_DIM,
    KEYS,
    MODEL_DIM,
    QUERIES,
    TERMS,
    check,
    layer_of,
    written_out,
)
from tests.layers.rounding import assert_close, normal, with_gradients


@pytest.mark.pairwise
@pytest.mark.parametrize("projection_bias", [True, False])
@pytest.mark.parametrize("output_bias", [True, False, None])
@pytest.mark.parametrize(
    "sizes",
    [{}, {"key_dim": 2}, {"value_dim": 7}, {"key_dim": 7, "value_dim": 2}, {"num_key_heads": 1}],
    ids=str,
)
def test_sizes_of_their_own(
    sizes: dict[str, int], projection_bias: bool, output_bias: bool | None
) -> None:
    layer = layer_of(projection_bias=projection_bias, output_bias=output_bias, **sizes)
    assert (layer.query.bias is not None) == projection_bias
    expected = projection_bias if output_bias is None else output_bias
    assert (layer.output.bias is not None) == expected
    check(layer, normal(BATCH, QUERIES, MODEL_DIM, seed=1))


@pytest.mark.parametrize("num_key_heads", [1, 2, 3, 6])
def test_a_context_and_grouped_heads(num_key_heads: int) -> None:
    layer = layer_of(
        6, num_key_heads=num_key_heads, key_dim=5, value_dim=2, context_dim=CONTEXT_DIM
    )
    x, context = (
        normal(BATCH, QUERIES, MODEL_DIM, seed=1),
        normal(BATCH, KEYS, CONTEXT_DIM, seed=2),
    )
    check(layer, x, context)
    check(layer, x, context, pattern=causal(), allowed=lambda b, i, j: j <= i)


def test_heads_that_do_not_divide_the_model() -> None:
    check(layer_of(4, key_dim=3), normal(BATCH, QUERIES, MODEL_DIM, seed=1))


@pytest.mark.parametrize("num_key_heads", [1, 2, 3])
def test_grouped_heads_are_repeated_heads(num_key_heads: int) -> None:
    grouped = layer_of(6, num_key_heads=num_key_heads, key_dim=5, pattern=causal())
    repeated = layer_of(6, key_dim=5, pattern=causal())
    group = 6 // num_key_heads

    def spread(weight: Tensor) -> Tensor:
        heads = weight.unflatten(0, (num_key_heads, 5))
        return heads.repeat_interleave(group, dim=0).flatten(0, 1)

    state = grouped.state_dict()
    for part in ("key", "value"):
        for kind in ("weight", "bias"):
            state[f"{part}.{kind}"] = spread(state[f"{part}.{kind}"])
    repeated.load_state_dict(state)

    x = normal(BATCH, QUERIES, MODEL_DIM, seed=1).requires_grad_()
    found = with_gradients(grouped(x), {"x": x} | dict(grouped.named_parameters()))
    expected = with_gradients(repeated(x), {"x": x} | dict(repeated.named_parameters()))
    for part in ("key", "value"):
        for kind in ("weight", "bias"):
            name = f"{part}.{kind}"
            # What is used several times gets the sum of the gradients.
            expected[name] = (
                expected[name].unflatten(0, (num_key_heads, group, 5)).sum(1).flatten(0, 1)
            )
    assert_close(found, expected, terms=TERMS)
    found, expected = (one.matrix(x).dense() for one in (grouped, repeated))
    assert_close({"weights": found}, {"weights": expected}, terms=TERMS)


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.0, -0.7, 0.0])
def test_scale(scale: float) -> None:
    x = normal(BATCH, QUERIES, MODEL_DIM, seed=1)
    check(layer_of(scale=scale), x, scale=scale)
    layer = layer_of(scale=scale, pattern=causal())
    check(layer, x, scale=scale, allowed=lambda b, i, j: j <= i)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("num_key_heads", [1, 3])
def test_rotary(num_key_heads: int, interleaved: bool) -> None:
    rotary = Rotary(4, base=100.0, interleaved=interleaved)
    layer = layer_of(num_key_heads=num_key_heads, rotary=rotary, pattern=causal())
    x = normal(BATCH, QUERIES, MODEL_DIM, seed=1)
    check(layer, x, rotary=rotary, allowed=lambda b, i, j: j <= i)
    # It makes a difference.
    assert not torch.allclose(layer(x), written_out(layer, x, allowed=lambda b, i, j: j <= i))


def test_alibi() -> None:
    # The slopes of the paper for four heads.
    check(
        layer_of(4, key_dim=3, bias=alibi(4)),
        normal(BATCH, QUERIES, MODEL_DIM, seed=1),
        adjust=lambda score, h, i, j: score - 2.0 ** (-2 * (h + 1)) * abs(i - j),
    )


def test_softcap() -> None:
    check(
        layer_of(bias=softcap(1.5), scale=3.0),
        normal(BATCH, QUERIES, MODEL_DIM, seed=1),
        scale=3.0,
        adjust=lambda score, h, i, j: 1.5 * torch.tanh(score / 1.5),
    )


def test_relative_and_the_gradient_of_its_table() -> None:
    # With 8 buckets the distances 0 and 1 have one each, keys after the query four of their own,
    # and up to 16 those from 4√2 on share the last.
    relative = Relative(3, num_buckets=8, max_distance=16)
    layer = layer_of(bias=relative)
    assert isinstance(layer.bias, Relative)
    table = layer.bias.table
    assert "bias.table" in dict(layer.named_parameters())
    buckets = [0, 1, 2, 2, 2, 2, 3]
    check(
        layer,
        normal(BATCH, QUERIES, MODEL_DIM, seed=1),
        adjust=lambda score, h, i, j: score + table[buckets[abs(i - j)] + 4 * (j > i), h],
    )


def test_a_bias_that_is_given_and_learned() -> None:
    values = nn.Parameter(normal(1, 3, QUERIES, KEYS, seed=5))
    layer = layer_of(context_dim=CONTEXT_DIM, bias=from_tensor(values, first_query=KEYS - QUERIES))
    x, context = (
        normal(BATCH, QUERIES, MODEL_DIM, seed=1),
        normal(BATCH, KEYS, CONTEXT_DIM, seed=2),
    )
    adjusted = written_out(
        layer, x, context, adjust=lambda score, h, i, j: score + values[0, h, i - 4, j]
    )
    inputs = {"values": values}
    expected = with_gradients(adjusted, inputs)
    assert_close(with_gradients(layer(x, context), inputs), expected, terms=TERMS)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "options",
    [{}, {"num_key_heads": 1, "rotary": Rotary(4)}, {"bias": alibi(3)}, {"bias": Relative(3)}],
    ids=["plain", "grouped and rotary", "alibi", "relative"],
)
def test_every_dtype(options: dict[str, Any], dtype: torch.dtype) -> None:
    exact = layer_of(pattern=causal(), **copy.deepcopy(options))
    x = normal(BATCH, QUERIES, MODEL_DIM, seed=1, dtype=dtype)
    cast = copy.deepcopy(exact).to(dtype)
    found = cast(x)
    assert found.dtype == dtype
    # The weights are rounded too, which the definition must not be blamed for.
    exact.load_state_dict(cast.state_dict())
    assert_close({"output": found}, {"output": exact(x.double())}, terms=TERMS)


def test_what_bfloat16_cannot_hold_is_kept() -> None:
    layer = MultiHeadAttention(12, 3, bias=alibi(3), rotary=Rotary(4)).to(torch.bfloat16)
    assert isinstance(layer.bias, nn.Module)
    assert isinstance(layer.rotary, Rotary)
    assert torch.equal(layer.bias.slopes, alibi(3).slopes)
    assert torch.equal(layer.rotary.frequencies, Rotary(4).frequencies)
    assert list(layer.state_dict()) == [
        f"{part}.{kind}"
        for part in ("query", "key", "value", "output")
        for kind in ("weight", "bias")
    ]


def test_gradcheck() -> None:
    layer = layer_of(num_key_heads=1, rotary=Rotary(2), bias=Relative(3), pattern=causal())
    x = normal(1, 3, MODEL_DIM, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(layer, (x,), fast_mode=True)


class Anything:
    """A bias of the user's own, as `Bias` describes it: nothing is inherited."""

    additive = True
    relative = True
    batch_size = None
    num_heads = None
    tensors: tuple[Tensor, ...] = ()

    def adjust(
        self, scores: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor
    ) -> Tensor:
        return scores - (query - key).abs().to(scores.dtype)


def test_a_bias_of_the_users_own() -> None:
    bias: Bias = Anything()
    check(
        layer_of(bias=bias),
        normal(BATCH, QUERIES, MODEL_DIM, seed=1),
        adjust=lambda score, h, i, j: score - abs(i - j),
    )


def compare_compiled() -> None:
    """Assert that a compiled layer gives what it gave before, gradients included."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(MODEL_DIM, 3, num_key_heads=1, pattern=regard.causal())
    compiled = torch.compile(layer, fullgraph=True)
    # The second length must not be taken for the first.
    for length in (17, 17, 41):
        x = normal(BATCH, length, MODEL_DIM, dtype=torch.float32).requires_grad_()
        inputs = {"x": x} | dict(layer.named_parameters())
        eager, found = (with_gradients(module(x), inputs) for module in (layer, compiled))
        # The longest sums, those of the gradients of weights, are over all tokens.
        assert_close(found, eager, terms=TERMS + BATCH * length)


@pytest.mark.slow
def test_compiled_it_gives_the_same(elsewhere: Elsewhere) -> None:
    elsewhere(compare_compiled)
