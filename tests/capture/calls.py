"""Calls of attention to be watched, and the weights that must be seen."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.capture import Seen

BATCH, HEADS, QUERIES, KEYS, KEY_DIM, VALUE_DIM = 2, 3, 5, 7, 4, 6
MODEL_DIM = 24


class Kernel(nn.Module):
    """A model that is nothing but one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **options: Any) -> Any:
        return self.function(*args, **options)


class Inputs(NamedTuple):
    query: Tensor
    key: Tensor
    value: Tensor

    def map(self, change: Callable[[Tensor], Tensor]) -> "Inputs":
        return Inputs(*(change(x) for x in self))


def inputs(
    *,
    batch: tuple[int, ...] = (BATCH,),
    heads: int = HEADS,
    key_heads: int = HEADS,
    queries: int = QUERIES,
    keys: int = KEYS,
    dtype: torch.dtype = torch.float64,
) -> Inputs:
    """Draw tensors, the queries large enough for attention that is far from uniform."""
    chance = torch.Generator().manual_seed(1)
    query = 2 * torch.randn(*batch, heads, queries, KEY_DIM, generator=chance)
    key = torch.randn(*batch, key_heads, keys, KEY_DIM, generator=chance)
    value = torch.randn(*batch, key_heads, keys, VALUE_DIM, generator=chance)
    return Inputs(query.to(dtype), key.to(dtype), value.to(dtype))


def scattered(*shape: int, seed: int = 2) -> Tensor:
    """Draw who may look at whom; each at the first key at least."""
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.6
    mask[..., 0] = True
    return mask


def numbers(*shape: int, seed: int = 3) -> Tensor:
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=chance, dtype=torch.float64)


def softmax_of(
    query: Tensor,
    key: Tensor,
    *,
    scale: float | None = None,
    allowed: Tensor | None = None,
    change: Callable[[Tensor], Tensor] = lambda scores: scores,
) -> Tensor:
    """Return the weights in float64, [batch, heads, queries, keys]."""
    query, key = query.double(), key.double()
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    scores = change(scores)
    return (scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)).softmax(dim=-1)


def assert_weights(seen: Seen, expected: Tensor, *, index: int = 0) -> None:
    """Assert that a call's matrix is what it must be, as far as its type can tell.

    A score is a sum of key_dim products, and with it goes the exponential; a row is summed over its
    keys. None of the scores here is larger than 50.
    """
    found = seen[index].matrix.dense()
    assert found.shape == expected.shape
    share = torch.finfo(found.dtype).eps * (50 * (KEY_DIM + 4) + 20 + 2 * expected.shape[-1])
    torch.testing.assert_close(found.double(), expected.double(), rtol=share, atol=1e-30)


def same(first: Any, second: Any) -> bool:
    if isinstance(first, tuple):
        return all(same(a, b) for a, b in zip(first, second, strict=True))
    return first is second is None or torch.equal(first, second)


def watched(model: nn.Module, *args: Any, **options: Any) -> Seen:
    """Run a model without and with somebody who looks on, and assert that it does not matter."""
    torch.manual_seed(4)
    expected = model(*args, **options)
    torch.manual_seed(4)
    with regard.watch(model) as seen:
        found = model(*args, **options)
    assert same(found, expected)
    if any(str(call.check) == "dropout" for call in seen):
        with pytest.raises(RuntimeError, match=r"were not compared .*: dropout "):
            seen.verify()
    else:
        seen.verify()
    return seen


AXES = {
    2: inputs(batch=(), heads=1, key_heads=1).map(lambda x: x[0]),
    3: inputs(heads=1, key_heads=1).map(lambda x: x[:, 0]),
    4: inputs(),
    5: inputs(batch=(2, 3), heads=5, key_heads=5),
    6: inputs(batch=(2, 1, 3), heads=5, key_heads=5),
}
"""Inputs by their number of axes; what has less than four has one head."""


def four_axes(tensor: Tensor) -> Tensor:
    if tensor.dim() < 4:
        return tensor.reshape(-1, 1, *tensor.shape[-2:])
    return tensor.flatten(end_dim=-4)


def tokens(count: int, *, batch_first: bool = True, seed: int = 6) -> Tensor:
    x = numbers(BATCH, count, MODEL_DIM, seed=seed)
    return x if batch_first else x.transpose(0, 1)


KEPT = torch.tensor([[True] * KEYS, [True] * 4 + [False] * (KEYS - 4)])


def layers(model: nn.Module) -> nn.Module:
    """Make the layers of a model of torch differ: they start as copies of one."""
    torch.manual_seed(8)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model
