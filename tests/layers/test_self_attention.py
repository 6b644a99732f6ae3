"""Against the formula on paper, in float64."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard.layers import SelfAttention
from regard.patterns import Pattern, causal, padding
from tests.layers.laws import assert_copies, assert_learns, in_every_way
from tests.layers.rounding import assert_close, normal, shuffle, with_gradients

BATCH, LENGTH, MODEL_DIM, KEY_DIM, VALUE_DIM = 2, 11, 7, 3, 5
TERMS = 2 * MODEL_DIM + KEY_DIM + 2 * LENGTH + BATCH * LENGTH

HIDDEN = torch.arange(LENGTH) >= torch.tensor([[4], [LENGTH]])
MEANINGS: dict[str, tuple[Pattern | None, Pattern | None, Tensor]] = {
    "everyone": (None, None, torch.zeros(1, LENGTH, LENGTH, dtype=torch.bool)),
    "causal": (causal(), None, torch.ones(1, LENGTH, LENGTH).triu(1).bool()),
    "causal in the call": (None, causal(), torch.ones(1, LENGTH, LENGTH).triu(1).bool()),
    "padding": (None, padding([4, LENGTH]), HIDDEN[:, None].expand(2, LENGTH, LENGTH)),
    "both": (
        causal(),
        padding([4, LENGTH]),
        HIDDEN[:, None] | torch.ones(1, LENGTH, LENGTH).triu(1).bool(),
    ),
}
"""Who may look always, who may look in this call, and which pairs are hidden by that."""


def layer_of(*, dtype: torch.dtype = torch.float64, pattern: Pattern | None = None):
    layer = SelfAttention(MODEL_DIM, KEY_DIM, VALUE_DIM, pattern=pattern)
    shuffle(layer)
    return layer.to(dtype)


def on_paper(layer: SelfAttention, x: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Return A = softmax(X W_Q W_Kᵀ Xᵀ / √key_dim), and A X W_V."""
    query, key, value = (part.weight.T for part in (layer.query, layer.key, layer.value))
    scores = x @ query @ key.T @ x.mT / math.sqrt(KEY_DIM)
    exponentials = torch.where(hidden, 0.0, torch.exp(scores))
    weights = exponentials / exponentials.sum(dim=-1, keepdim=True)
    return weights, weights @ x @ value


@pytest.mark.parametrize("meaning", MEANINGS)
def test_the_formula(meaning: str) -> None:
    always, now, hidden = MEANINGS[meaning]
    layer = layer_of(pattern=always)
    x = normal(BATCH, LENGTH, MODEL_DIM, seed=1).requires_grad_()
    inputs = {"x": x} | dict(layer.named_parameters())
    weights, output = on_paper(layer, x, hidden)
    expected = with_gradients(output, inputs)
    assert_close(with_gradients(layer(x, pattern=now), inputs), expected, terms=TERMS)
    found = layer.matrix(x, pattern=now)
    assert found.shape == (BATCH, 1, LENGTH, LENGTH)
    assert_close({"weights": found.dense()[:, 0]}, {"weights": weights}, terms=TERMS)

    layer, x = copy.deepcopy(layer).float(), x.detach().float().requires_grad_()
    found = with_gradients(layer(x, pattern=now), {"x": x} | dict(layer.named_parameters()))
    assert found["output"].dtype == torch.float32
    assert_close(found, expected, terms=TERMS)


def test_the_one_matrix_behind_queries_and_keys() -> None:
    layer, x = layer_of(), normal(BATCH, LENGTH, MODEL_DIM, seed=1)
    weights = torch.softmax(x @ layer.bilinear @ x.mT, dim=-1)
    found = {"weights": layer.matrix(x).dense()[:, 0], "output": layer(x)}
    expected = {"weights": weights, "output": weights @ x @ layer.value.weight.T}
    assert_close(found, expected, terms=TERMS)
    assert layer.bilinear.shape == (MODEL_DIM, MODEL_DIM)
    assert torch.linalg.matrix_rank(layer.bilinear) == KEY_DIM


def test_gradients_reach_the_one_matrix() -> None:
    layer = layer_of()
    found = with_gradients(layer.bilinear, {"query": layer.query.weight})
    grad = normal(MODEL_DIM, MODEL_DIM)
    expected = layer.key.weight @ grad.T / math.sqrt(KEY_DIM)
    assert_close({"query": found["query"]}, {"query": expected}, terms=TERMS)


def test_sizes() -> None:
    x = normal(BATCH, LENGTH, MODEL_DIM, dtype=torch.float32)
    for arguments, sizes in [
        ((), (7, 7)),
        ((3,), (3, 3)),
        ((3, 5), (3, 5)),
        ((None, 5), (7, 5)),
    ]:
        layer = SelfAttention(MODEL_DIM, *arguments)
        assert (layer.query.out_features, layer.value.out_features) == sizes
        assert layer.key.out_features == sizes[0]
        assert layer(x).shape == (BATCH, LENGTH, sizes[1])
    assert sorted(layer.state_dict()) == ["key.weight", "query.weight", "value.weight"]


def test_an_order_of_tokens_is_not_seen() -> None:
    layer, x = layer_of(), normal(BATCH, LENGTH, MODEL_DIM, seed=1)
    order = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(0))
    found, expected = layer(x[:, order]), layer(x)[:, order]
    assert_close({"output": found}, {"output": expected}, terms=TERMS)


@pytest.mark.parametrize("length", [0, 1])
def test_short_sequences(length: int) -> None:
    layer, x = layer_of(pattern=causal()), normal(BATCH, length, MODEL_DIM)
    expected = x @ layer.value.weight.T
    assert_close({"output": layer(x)}, {"output": expected}, terms=TERMS)


@pytest.mark.parametrize("pattern", [None, causal(), padding([2])], ids=str)
def test_gradcheck(pattern: Pattern | None) -> None:
    layer = SelfAttention(3, 2, 1, pattern=pattern).double()
    x = normal(1, 3, 3).requires_grad_()
    weights = [part.weight for part in (layer.query, layer.key, layer.value)]

    def output(x: Tensor, *weights: Tensor) -> Tensor:
        named = dict(zip(("query.weight", "key.weight", "value.weight"), weights, strict=True))
        return torch.func.functional_call(layer, named, (x,))

    assert torch.autograd.gradcheck(output, (x, *weights))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), r"^model_dim must be at least 1, got 0$"),
        ((7, 0), r"^key_dim must be at least 1, got 0$"),
        ((7, 3, -2), r"^value_dim must be at least 1, got -2$"),
    ],
)
def test_refusals(arguments: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SelfAttention(*arguments)


@pytest.mark.parametrize("pattern", [None, causal(), causal() & padding([2])], ids=str)
def test_repr(pattern: Pattern | None) -> None:
    printed = repr(SelfAttention(7, 3, 5, pattern=pattern))
    assert printed.startswith("SelfAttention(")
    assert "(value): Linear(in_features=7, out_features=5, bias=False)" in printed


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_every_dtype(dtype: torch.dtype) -> None:
    layer, x = layer_of(dtype=dtype, pattern=causal()), normal(BATCH, LENGTH, MODEL_DIM, seed=1)
    exact = layer_of(pattern=causal())
    exact.load_state_dict(layer.state_dict())
    found = layer(x.to(dtype))
    assert found.dtype == dtype
    expected = exact(x.to(dtype).double())
    assert_close({"output": found}, {"output": expected}, terms=TERMS)


@in_every_way
def test_copies(copied: Callable[[SelfAttention], SelfAttention]) -> None:
    layer, x = layer_of(pattern=causal()), normal(BATCH, LENGTH, MODEL_DIM)
    assert_copies(layer, copied, lambda layer: layer(x))


def test_training_lowers_the_loss() -> None:
    torch.manual_seed(0)
    layer = SelfAttention(MODEL_DIM, KEY_DIM, VALUE_DIM)
    x = normal(BATCH, LENGTH, MODEL_DIM, seed=1, dtype=torch.float32)
    target = x.mean(dim=1, keepdim=True)[..., :VALUE_DIM].expand(-1, LENGTH, -1)
    assert_learns(layer, lambda: layer(x), target, rate=0.5, share=0.8)
