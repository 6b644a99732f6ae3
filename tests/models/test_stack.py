from typing import Any

import pytest
import torch
from torch import nn

from regard import causal
from regard.layers import KeyValueCache
from regard.models.stack import Stack, StackConfig, make_norm
from regard.positions import Relative
from tests.models.cases import lively

X = torch.randn(2, 7, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def stack_of(num_layers: int, **options: Any) -> Stack:
    return Stack(StackConfig(num_layers=num_layers, model_dim=12, num_heads=4, **options))


def test_blocks_run_one_after_the_other() -> None:
    stack = lively(stack_of(3)).double()
    expected = [X]
    for block in stack:
        expected.append(block(expected[-1], pattern=causal()))
    found = stack.states(X, pattern=causal())
    assert len(found) == 4
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert torch.equal(stack(X, pattern=causal()), expected[-1])


def test_each_matrix_is_that_of_its_block() -> None:
    stack = lively(stack_of(3)).double()
    states = stack.states(X, pattern=causal())
    matrices = stack.matrices(X, pattern=causal())
    assert len(matrices) == 3
    for block, state, matrix in zip(stack, states, matrices, strict=False):
        assert torch.equal(matrix.dense(), block.matrix(state, pattern=causal()).dense())


def test_a_block_of_attention_alone() -> None:
    stack = stack_of(2, hidden_dim=0)
    names = {name for name, _ in stack.named_parameters()}
    assert not any("feed_forward" in name for name in names)
    assert "0.attention_norm.weight" in names


@pytest.mark.parametrize(("hidden_dim", "expected"), [(None, 48), (5, 5)])
def test_the_size_of_the_hidden_layer(hidden_dim: int | None, expected: int) -> None:
    (block,) = stack_of(1, hidden_dim=hidden_dim)
    assert block.feed_forward.up.out_features == expected


def test_blocks_share_what_they_are_told_of_order() -> None:
    # As in T5: one table for all layers.
    stack = stack_of(3, position_encoding="relative")
    tables = [name for name, _ in stack.named_parameters() if "table" in name]
    assert tables == ["0.attention.bias.table"]
    assert all(block.attention.bias is stack[0].attention.bias for block in stack)
    assert isinstance(stack[0].attention.bias, Relative)


def test_without_biases() -> None:
    stack = stack_of(2, norm="rms", activation="swiglu", projection_bias=False)
    assert not any(name.endswith("bias") for name, _ in stack.named_parameters())


@pytest.mark.parametrize("num_caches", [0, 1, 3])
def test_a_cache_for_each_layer(num_caches: int) -> None:
    stack = stack_of(2)
    caches = [KeyValueCache() for _ in range(num_caches)]
    message = rf"^caches must have one cache per layer \(2\), got {num_caches}$"
    with pytest.raises(ValueError, match=message):
        stack(X.float(), caches=caches)
    assert all(len(cache) == 0 for cache in caches)


@pytest.mark.parametrize(("name", "kind"), [("layer", nn.LayerNorm), ("rms", nn.RMSNorm)])
def test_norms_by_name(name: str, kind: type[nn.Module]) -> None:
    norm = make_norm(name, 12, 0.25)
    assert type(norm) is kind
    assert norm.eps == 0.25
    assert norm.normalized_shape == (12,)


def test_other_norms_are_refused() -> None:
    with pytest.raises(ValueError, match=r'^norm must be one of "layer", "rms", got "batch"$'):
        make_norm("batch", 12, 1e-5)


@pytest.mark.parametrize("name", ["num_layers", "model_dim", "num_heads"])
def test_sizes_must_be_positive(name: str) -> None:
    sizes = {"num_layers": 2, "model_dim": 12, "num_heads": 4} | {name: 0}
    with pytest.raises(ValueError, match=f"^{name} must be at least 1, got 0$"):
        Stack(StackConfig(**sizes))
