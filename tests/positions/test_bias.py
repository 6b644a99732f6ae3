"""What every bias promises, whichever it is."""

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from regard.positions import Bias, Relative, alibi, from_tensor, softcap

BATCH, HEADS, QUERIES, KEYS = 2, 3, 5, 7


def relative() -> Relative:
    bias = Relative(HEADS, num_buckets=10, max_distance=6)
    torch.nn.init.normal_(bias.table)
    return bias


def every_bias() -> dict[str, Bias]:
    torch.manual_seed(0)
    return {
        "alibi": alibi(HEADS),
        "relative": relative(),
        "softcap": softcap(1.5),
        "from_tensor": from_tensor(torch.randn(BATCH, HEADS, QUERIES, KEYS)),
        "given to all": from_tensor(torch.randn(1, 1, QUERIES, KEYS)),
    }


def indices() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (
        torch.arange(BATCH)[:, None, None, None],
        torch.arange(HEADS)[:, None, None],
        torch.arange(QUERIES)[:, None],
        torch.arange(KEYS),
    )


@pytest.fixture(params=list(every_bias()))
def bias(request: pytest.FixtureRequest) -> Bias:
    return every_bias()[request.param]


def test_it_is_a_bias(bias: Bias) -> None:
    assert isinstance(bias, Bias)


def test_it_can_be_a_key(bias: Bias) -> None:
    assert {bias: "found"}[bias] == "found"


def test_other_things_are_not() -> None:
    assert not isinstance(torch.nn.Linear(2, 3), Bias)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_dtype_of_scores_is_kept(bias: Bias, dtype: torch.dtype) -> None:
    scores = torch.randn(BATCH, HEADS, QUERIES, KEYS, dtype=dtype)
    adjusted = bias.adjust(scores, *indices())
    assert adjusted.dtype == dtype
    assert adjusted.shape == scores.shape


def test_a_single_pair_equals_its_place_in_the_whole(bias: Bias) -> None:
    scores = torch.randn(BATCH, HEADS, QUERIES, KEYS, dtype=torch.float64)
    whole = bias.adjust(scores, *indices())
    for place in [(0, 0, 0, 0), (1, 2, 4, 6), (0, 1, 3, 1), (1, 0, 2, 5)]:
        alone = bias.adjust(scores[place], *(torch.tensor(index) for index in place))
        assert alone.shape == ()
        torch.testing.assert_close(alone, whole[place], rtol=0, atol=0)


def test_a_rectangle_equals_its_place_in_the_whole(bias: Bias) -> None:
    scores = torch.randn(BATCH, HEADS, QUERIES, KEYS, dtype=torch.float64)
    batch, head, query, key = indices()
    whole = bias.adjust(scores, batch, head, query, key)
    part = bias.adjust(scores[:, 1:, 2:4, 3:], batch, head[1:], query[2:4], key[3:])
    torch.testing.assert_close(part, whole[:, 1:, 2:4, 3:], rtol=0, atol=0)


def test_arguments_broadcast(bias: Bias) -> None:
    score = torch.tensor(0.25, dtype=torch.float64)
    broadcast = bias.adjust(score.expand(BATCH, HEADS, QUERIES, KEYS), *indices())
    adjusted = bias.adjust(score, *indices())
    torch.testing.assert_close(adjusted.expand_as(broadcast), broadcast, rtol=0, atol=0)


def test_additive_means_that_the_score_does_not_matter(bias: Bias) -> None:
    first, second = torch.randn(2, BATCH, HEADS, QUERIES, KEYS, dtype=torch.float64)
    added = bias.adjust(first, *indices()) - first
    same = torch.allclose(added, bias.adjust(second, *indices()) - second)
    assert same == bias.additive


def test_heads_differ_only_if_there_is_a_number_of_them(bias: Bias) -> None:
    adjusted = bias.adjust(torch.ones(BATCH, HEADS, QUERIES, KEYS), *indices())
    assert torch.equal(adjusted[:, :1].expand_as(adjusted), adjusted) == (bias.num_heads is None)
    assert bias.num_heads in (None, HEADS)


def test_tensors_are_those_that_get_gradients(bias: Bias) -> None:
    for tensor in bias.tensors:
        tensor.requires_grad_()
    scores = torch.randn(BATCH, HEADS, QUERIES, KEYS, requires_grad=True)
    bias.adjust(scores, *indices()).square().sum().backward()
    assert scores.grad is not None
    for tensor in bias.tensors:
        assert tensor.grad is not None
        assert tensor.grad.any()


# The shape checks keep a stack of their own, which FlexAttention's tracer takes for a side effect.
@pytest.mark.usefixtures("unchecked")
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_can_trace_it(bias: Bias) -> None:
    torch.manual_seed(1)
    dim = 8
    query = torch.randn(BATCH, HEADS, QUERIES, dim)
    key, value = torch.randn(2, BATCH, HEADS, KEYS, dim)
    traced = flex_attention(query, key, value, score_mod=bias.adjust, scale=1.0)
    scores = bias.adjust(query @ key.mT, *indices())
    tolerance = 16 * torch.finfo(torch.float32).eps
    torch.testing.assert_close(traced, scores.softmax(-1) @ value, rtol=0, atol=tolerance)
