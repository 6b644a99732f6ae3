"""What `watch` sees of attention that is written by hand, and which softmaxes are none."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from tests.capture.calls import (
    AXES,
    KEY_DIM,
    KEYS,
    QUERIES,
    VALUE_DIM,
    Kernel,
    assert_weights,
    four_axes,
    inputs,
    numbers,
    scattered,
    softmax_of,
    watched,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def scores_of(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.mT * KEY_DIM**-0.5


def by_functional(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    weights = F.softmax(scores_of(query, key), dim=-1)
    return weights, weights @ value


def by_torch(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    weights = torch.softmax(scores_of(query, key), -1)
    return weights, torch.matmul(weights, value)


def by_method(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    weights = scores_of(query, key).softmax(dim=query.dim() - 1)
    return weights, weights.matmul(value)


def by_module(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    weights = nn.Softmax(dim=-1)(scores_of(query, key))
    return weights, weights @ value


def by_einsum(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    scores = torch.einsum("...qd,...kd->...qk", query, key) * KEY_DIM**-0.5
    weights = scores.softmax(-1)
    return weights, torch.einsum("...qk,...kd->...qd", weights, value)


def with_learned_sharpness(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    # As in Swin v2: what a head has learned is the logarithm.
    scores = F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).mT
    weights = (scores * torch.full((1, 1), 0.4).exp()).softmax(dim=-1)
    return weights, weights @ value


def with_weights_as_scores(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    weights = (9 * scores_of(query, key).softmax(dim=-1)).softmax(dim=-1)
    return weights, weights @ value


def viewed_as_a_row(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    weights = scores_of(query, key).softmax(dim=-1)
    weights = weights.view(1, -1).view(weights.shape)
    return weights, weights @ value


def with_dropout(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    weights = scores_of(query, key).softmax(dim=-1)
    return weights, F.dropout(weights, 0.4, training=True) @ value


def with_a_dropout_module(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    weights = scores_of(query, key).softmax(dim=-1)
    return weights, nn.Dropout(0.4)(weights) @ value


def with_another_type(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    weights = F.softmax(scores_of(query, key), dim=-1, dtype=torch.float64).to(torch.float32)
    return weights, weights @ value.to(torch.float32)


def with_all_between(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    weights = scores_of(query, key).softmax(dim=-1)
    dropped = F.dropout(weights.type_as(value), 0.4, training=True).contiguous()
    return weights, dropped.view(dropped.shape).reshape(dropped.shape) @ value


def with_a_mask_after(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    hidden = ~scattered(QUERIES, KEYS)
    weights = scores_of(query, key).softmax(dim=-1).masked_fill(hidden, 0.0)
    return weights, weights @ value


def with_weights_above_one(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """What a model does to its weights is its own affair."""
    hidden = ~scattered(QUERIES, KEYS)
    weights = scores_of(query, key).softmax(dim=-1).masked_fill(hidden, 2.0)
    return weights, weights @ value


def with_a_mask_before(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    hidden = ~scattered(QUERIES, KEYS)
    weights = scores_of(query, key).masked_fill(hidden, -torch.inf).softmax(dim=-1)
    return weights, weights @ value


def with_flat_heads(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    weights = scores_of(query, key).softmax(dim=-1)
    flat = weights.reshape(-1, QUERIES, KEYS)
    output = torch.bmm(flat, value.reshape(-1, KEYS, VALUE_DIM))
    return weights, output.view(*query.shape[:-1], VALUE_DIM)


BY_HAND = (
    by_functional,
    by_torch,
    by_method,
    by_module,
    by_einsum,
    with_dropout,
    with_a_dropout_module,
    with_another_type,
    with_all_between,
    with_a_mask_after,
    with_weights_above_one,
    with_a_mask_before,
    with_flat_heads,
    with_learned_sharpness,
    with_weights_as_scores,
    viewed_as_a_row,
)


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("attention", BY_HAND)
def test_attention_by_hand(attention: Callable[..., tuple[Tensor, Tensor]], axes: int) -> None:
    model = Kernel(attention)
    given = AXES[axes]
    seen = watched(model, *given)
    (call,) = seen
    assert (call.kernel, call.heads_known) == ("softmax", True)
    if "dropout" in attention.__name__ or "all_between" in attention.__name__:
        assert str(call.check) == "dropout"
    else:
        assert call.check.passed
    torch.manual_seed(4)
    assert torch.equal(call.matrix.dense(), four_axes(attention(*given)[0]))


def test_attention_by_hand_is_what_is_asked_for() -> None:
    """What the other test compares with, held against the definition."""
    given = AXES[4]
    for attention in (by_functional, by_torch, by_method, by_module, by_einsum):
        assert_weights(watched(Kernel(attention), *given), softmax_of(given.query, given.key))


def test_each_of_several_softmaxes_is_seen() -> None:
    first, second = inputs(), inputs(queries=3, keys=3)

    def both() -> tuple[Tensor, Tensor]:
        return by_torch(*first)[1], by_method(*second)[1]

    seen = watched(Kernel(both))
    assert len(seen) == 2
    assert_weights(seen, softmax_of(first.query, first.key))
    assert_weights(seen, softmax_of(second.query, second.key), index=1)


def classifier(x: Tensor) -> Tensor:
    return F.softmax(x, dim=-1)


def router(x: Tensor) -> Tensor:
    share, expert = torch.softmax(x, dim=-1).topk(2)
    return (share[..., None] * x[:, None]).sum() + expert.sum()


def along_another_axis(x: Tensor) -> Tensor:
    return x.softmax(dim=0) @ x.T


def along_another_axis_of_three(x: Tensor) -> Tensor:
    return F.softmax(x[None], dim=1) @ x.T


def of_one_axis(x: Tensor) -> Tensor:
    return x[0].softmax(dim=-1) @ x.T


def gate(x: Tensor) -> Tensor:
    return x.softmax(dim=-1) * x


def something_else_multiplied(x: Tensor) -> Tensor:
    return x.softmax(dim=-1).sum() + (x @ x.T).sum()


@pytest.mark.parametrize(
    "function",
    [
        classifier,
        router,
        along_another_axis,
        along_another_axis_of_three,
        of_one_axis,
        gate,
        something_else_multiplied,
    ],
)
def test_other_softmaxes_are_not_taken_for_attention(function: Callable[[Tensor], Tensor]) -> None:
    model = Kernel(function)
    with pytest.raises(RuntimeError, match="no attention was seen"), regard.watch(model):
        model(numbers(QUERIES, KEYS))


@pytest.mark.parametrize("nested", [True, False])
def test_a_router_that_casts_its_weight_is_not_taken_for_attention(nested: bool) -> None:
    """As of DeepSeek in half precision, and of LongCat, which has it in a linear layer."""

    class Router(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.Linear(KEYS, 6, bias=False).bfloat16()
            if nested:
                self.layer = layer
            else:
                self.weight = layer.weight

        def forward(self, x: Tensor) -> Tensor:
            (weight,) = self.parameters()
            return F.linear(x, weight.type(x.dtype)).softmax(dim=-1).topk(2)[0]

    model = Router()
    with pytest.raises(RuntimeError, match="no attention was seen"), regard.watch(model):
        model(numbers(QUERIES, KEYS))


def test_keys_in_the_shape_of_a_parameter_are_attended_to() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(KEYS, 4, dtype=torch.float64))

        def forward(self, query: Tensor, key: Tensor) -> Tensor:
            return F.linear(query, key).softmax(dim=-1) @ key

    model, query, key = Attention(), numbers(QUERIES, 4), numbers(KEYS, 4)
    with regard.watch(model) as seen:
        model(query, key)
    torch.testing.assert_close(seen[0].matrix.dense()[0, 0], (query @ key.mT).softmax(dim=-1))


def test_views_that_only_dropped_weights_have() -> None:
    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        weights = scores_of(query, key)[:1].softmax(dim=-1).expand(query.shape[0], -1, -1, -1)
        dropped = F.dropout(weights, 0.5)
        return dropped.view(-1, KEYS).view(weights.shape) @ value

    model, given = Kernel(attention), inputs()
    torch.manual_seed(4)
    expected = model(*given)
    torch.manual_seed(4)
    with regard.watch(model) as seen:
        assert torch.equal(model(*given), expected)
    assert seen[0].problem.endswith("was not followed to a product with values")


@pytest.mark.parametrize("decay", [-200.0, -6.0])
def test_decays_are_not_taken_for_attention(decay: float) -> None:
    # As in Mamba 2: states are handed on, and what is long ago has faded.
    def states(x: Tensor) -> Tensor:
        mixed = x @ x.mT
        decays = torch.tensor([[0, -torch.inf], [decay, 0]], dtype=x.dtype).exp()
        return decays @ x + mixed.sum()

    model = Kernel(states)
    with pytest.raises(RuntimeError, match=r"^no attention was seen"), regard.watch(model):
        model(numbers(2, 3, 2, 8))


class InChunks(nn.Module):
    """Looks within chunks only, and may have a bias of chunks, as most layers of LongT5."""

    chunk = 4

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        chunks = x.unflatten(1, (-1, self.chunk))[:, :, None]
        scores = chunks @ chunks.mT
        weights = (scores if bias is None else scores + bias).softmax(dim=-1)
        return (weights @ chunks).flatten(1, 3)


@pytest.mark.parametrize("bias", [None, numbers(1, 1, 1, 4, 4)])
def test_chunks_are_not_taken_for_the_whole(bias: Tensor | None) -> None:
    model = InChunks()
    with regard.watch(model) as seen:
        model(numbers(2, 20, 8), bias)
    (call,) = seen
    assert call.problem.startswith("block-sparse or chunked attention, or")
