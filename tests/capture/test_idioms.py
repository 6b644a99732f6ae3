"""What is done to weights between the softmax and the product: followed, or said not to be."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from tests.capture.calls import (
    BATCH,
    HEADS,
    KEYS,
    QUERIES,
    VALUE_DIM,
    Inputs,
    Kernel,
    inputs,
    numbers,
    scattered,
    watched,
)

pytestmark = pytest.mark.usefixtures("one_thread")

GATE = numbers(BATCH, HEADS, QUERIES, 1).sigmoid()
ALLOWED = scattered(QUERIES, KEYS)
SINK = numbers(BATCH, HEADS, QUERIES, 1)
Found = tuple[Tensor, Tensor]
"""The output, and the weights that it was made with, [batch, heads, queries, keys]."""


def softmax(query: Tensor, key: Tensor) -> Tensor:
    return (query @ key.mT / 2).softmax(dim=-1)


def gated(query: Tensor, key: Tensor, value: Tensor) -> Found:
    weights = softmax(query, key) * GATE
    return weights @ value, weights


def with_a_sink(query: Tensor, key: Tensor, value: Tensor) -> Found:
    weights = torch.cat([query @ key.mT / 2, SINK], dim=-1).softmax(dim=-1)[..., :-1]
    return weights @ value, weights


def turned(query: Tensor, key: Tensor, value: Tensor) -> Found:
    weights = softmax(query, key)
    return (value.mT @ weights.mT).mT, weights


def turned_and_copied(query: Tensor, key: Tensor, value: Tensor) -> Found:
    weights = softmax(query, key).permute(0, 1, 3, 2).contiguous()
    return torch.matmul(value.transpose(-1, -2), weights).transpose(-1, -2), weights.mT


def chosen_by_where(query: Tensor, key: Tensor, value: Tensor) -> Found:
    weights = torch.where(ALLOWED, softmax(query, key), 0.0)
    return weights @ value, weights


def without_nan(query: Tensor, key: Tensor, value: Tensor) -> Found:
    weights = softmax(query, key).nan_to_num(0.0)
    return weights @ value, weights


def added_to_something(query: Tensor, key: Tensor, value: Tensor) -> Found:
    weights = softmax(query, key)
    start = torch.ones(BATCH * HEADS, QUERIES, VALUE_DIM, dtype=query.dtype)
    output = torch.baddbmm(start, weights.flatten(0, 1), value.flatten(0, 1))
    return output.view(BATCH, HEADS, QUERIES, VALUE_DIM), weights


def by_its_logarithm(query: Tensor, key: Tensor, value: Tensor) -> Found:
    weights = (query @ key.mT / 2).log_softmax(dim=-1).exp()
    return weights @ value, weights


def by_exponentials(query: Tensor, key: Tensor, value: Tensor) -> Found:
    scores = query @ key.mT / 2
    powers = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    weights = powers / powers.sum(dim=-1, keepdim=True)
    return weights @ value, weights


def by_a_sum(query: Tensor, key: Tensor, value: Tensor) -> Found:
    weights = softmax(query, key)
    return (weights.unsqueeze(-1) * value.unsqueeze(-3)).sum(dim=-2), weights


def in_place(query: Tensor, key: Tensor, value: Tensor) -> Found:
    weights = softmax(query, key)
    weights *= GATE
    weights.masked_fill_(~ALLOWED, 0.0)
    return weights @ value, weights.clone()


def with_an_entry_set(query: Tensor, key: Tensor, value: Tensor) -> Found:
    weights = softmax(query, key)
    weights[..., 0] = 0
    return weights @ value, weights


def with_queries_before_heads(query: Tensor, key: Tensor, value: Tensor) -> Found:
    weights = torch.einsum("bhqd,bhkd->bqhk", query, key).div(2).softmax(dim=-1)
    return torch.einsum("bqhk,bhkd->bqhd", weights, value), weights.transpose(1, 2)


def with_a_mask_of_two_masks(query: Tensor, key: Tensor, value: Tensor) -> Found:
    mask = torch.einsum("bhq,bk->bhqk", GATE[..., 0].ceil(), torch.ones(len(key), key.shape[2]))
    weights = (query @ key.mT / 2 + (1 - mask) * -1e9).softmax(dim=-1)
    return weights @ value, weights


def of_numbers(query: Tensor, key: Tensor, value: Tensor) -> Found:
    weights = torch.einsum("bhq,bhk->bhqk", query[..., 0], key[..., 0]).softmax(dim=-1)
    return weights @ value, weights


def of_a_trace(query: Tensor, key: Tensor, value: Tensor) -> Found:
    traces = torch.einsum(
        "bhqd,bhkcc->bhqk", query, key[..., None].expand(*key.shape, key.shape[-1])
    )
    weights = (query @ key.mT + 0.1 * traces).softmax(dim=-1)
    return weights @ value, weights


def with_values_first(query: Tensor, key: Tensor, value: Tensor) -> Found:
    weights = softmax(query, key)
    return torch.einsum("...kd,...qk->...qd", value, weights), weights


def with_keys_before_queries(query: Tensor, key: Tensor, value: Tensor) -> Found:
    weights = (key @ query.mT / 2).softmax(dim=-2)
    return weights.mT @ value, weights.mT


def of_two_softmaxes(query: Tensor, key: Tensor, value: Tensor) -> Found:
    weights = softmax(query, key) - 0.3 * (query @ key.mT).softmax(dim=-1)
    return weights @ value, weights


def summing_to_one_again(query: Tensor, key: Tensor, value: Tensor) -> Found:
    weights = softmax(query, key) * ALLOWED
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights @ value, weights


def rounded(query: Tensor, key: Tensor, value: Tensor) -> Found:
    weights = softmax(query, key).half().to(value)
    return weights @ value, weights


FOLLOWED = [
    gated,
    with_a_sink,
    turned,
    turned_and_copied,
    chosen_by_where,
    without_nan,
    added_to_something,
    by_its_logarithm,
    by_exponentials,
    by_a_sum,
    in_place,
    with_an_entry_set,
    with_queries_before_heads,
    with_a_mask_of_two_masks,
    of_numbers,
    of_a_trace,
    with_values_first,
    with_keys_before_queries,
    of_two_softmaxes,
    summing_to_one_again,
    rounded,
]


@pytest.mark.parametrize("attention", FOLLOWED)
@pytest.mark.parametrize("beside", [False, True])
def test_what_was_multiplied_is_seen(attention: Callable[..., Found], beside: bool) -> None:
    """Alone, and beside a call of PyTorch's attention, which would be seen in any case."""

    def run(query: Tensor, key: Tensor, value: Tensor) -> Found:
        if beside:
            F.scaled_dot_product_attention(query, key, value)
        return attention(query, key, value)

    given = inputs()
    seen = watched(Kernel(run), *given)
    assert len(seen) == 1 + beside
    call = seen[-1]
    assert (call.kernel, call.problem, call.heads_known) == ("softmax", "", True)
    assert call.check.passed
    assert torch.equal(call.matrix.dense(), run(*given)[1])
    seen.verify()


def key_by_key(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    first, second = softmax(query, key).chunk(2, dim=-1)
    middle = first.shape[-1]
    return first @ value[..., :middle, :] + second @ value[..., middle:, :]


def head_by_head(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    weights = softmax(query, key)
    return torch.stack([weights[:, head] @ value[:, head] for head in range(HEADS)], dim=1)


def only_the_largest(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return softmax(query, key).topk(3).values @ value[..., :3, :]


def multiplied_with_queries(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return softmax(query, key).mT @ query


@pytest.mark.parametrize(
    ("attention", "why"),
    [
        (key_by_key, "was multiplied with values in several parts"),
        (head_by_head, "was multiplied with values in several parts"),
        (only_the_largest, "was not followed to a product with values"),
        (multiplied_with_queries, "was not followed to a product with values"),
    ],
)
def test_what_is_not_followed_is_a_row_with_the_reason(
    attention: Callable[..., Tensor], why: str
) -> None:
    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        F.scaled_dot_product_attention(query, key, value)
        return attention(query, key, value)

    model = Kernel(run)
    with regard.watch(model) as seen:
        model(*inputs())
    understood, lost = seen
    assert not understood.problem
    assert lost.problem == f"a softmax of 2 × 3 × 5 × 7 {why}"
    with pytest.raises(ValueError, match=r"several parts|not followed"):
        _ = lost.matrix
    with pytest.raises(RuntimeError, match=r"call 1 .* was not understood"):
        seen.verify()


class Folded(nn.Module):
    """Attention whose heads lie in the batch."""

    def __init__(self, num_heads: int | None) -> None:
        super().__init__()
        if num_heads is not None:
            self.num_heads = num_heads

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key, value = (x.flatten(0, 1) for x in (query, key, value))
        weights = torch.bmm(query, key.mT).softmax(dim=-1)
        return torch.bmm(weights, value)


def expected(given: Inputs) -> Tensor:
    return (given.query @ given.key.mT).softmax(dim=-1)


def test_heads_in_the_batch_are_told_apart_where_the_module_says_how_many() -> None:
    given = inputs()
    (call,) = watched(Folded(HEADS), *given)
    assert call.heads_known
    assert torch.equal(call.matrix.dense(), expected(given))


@pytest.mark.parametrize("said", [None, 4])
def test_heads_that_can_not_be_told_apart_are_unknown(said: int | None) -> None:
    given = inputs()
    seen = watched(Folded(said), *given)
    (call,) = seen
    assert not call.heads_known
    assert call.heads_as_text == "?"
    assert "?" in str(seen)
    torch.testing.assert_close(call.matrix.dense().flatten(0, 1), expected(given).flatten(0, 1))
