"""Queries and keys in a page: their products are the scores of its weights."""

import re
from typing import Any

import pytest
import torch

import regard
from regard.calls import AttentionCall
from tests.views.test_page import facts, inflated

pytestmark = pytest.mark.usefixtures("one_thread")


def call_of(dtype: torch.dtype = torch.float32, **options: Any) -> AttentionCall:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 4, 7, 5, generator=generator).to(dtype)
    key = torch.randn(1, 2, 7, 5, generator=generator).to(dtype)
    matrix = regard.AttentionMatrix(query, key, pattern=regard.causal(), **options)
    return AttentionCall.of(matrix, "layers.3.attn", index=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_softmax_of_their_scores_is_the_matrix(dtype: torch.dtype) -> None:
    call = call_of(dtype, scale=0.3)
    page = regard.page(call, list("abcdefg"), dimensions=True)
    assert facts(page)["vectors"] == [{"dim": 5, "key_heads": 2, "scale": 0.3, "bias": False}]
    numbers = torch.tensor(inflated(page, "vectors-0").view("<f4")).double()
    query, key = numbers[: 4 * 35].view(4, 7, 5), numbers[4 * 35 :].view(2, 7, 5)
    assert torch.equal(query, call.query[0].double())
    scores = 0.3 * query @ key.repeat_interleave(2, dim=0).mT
    hidden = torch.ones(7, 7, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
    assert torch.allclose(call.matrix.dense()[0].double(), weights, atol=1e-6)


def test_a_bias_is_said() -> None:
    call = call_of(bias=torch.zeros(1, 1, 7, 7))
    assert facts(regard.page(call, list("abcdefg"), dimensions=True))["vectors"][0]["bias"]


def test_they_are_only_there_if_wanted() -> None:
    page = regard.page(call_of(), list("abcdefg"))
    assert facts(page)["vectors"] == []
    assert "regard-vectors" not in re.sub(r"<script>.*", "", page.html, flags=re.DOTALL)


def test_what_can_not_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"take 0 MB, more than limit=500 bytes: choose fewer"):
        regard.page(call_of(), list("abcdefg"), dimensions=True, limit=500)
    with pytest.raises(ValueError, match="layer 3 has float64, which pages don't store"):
        regard.page(call_of(torch.float64), list("abcdefg"), dimensions=True)
    weights = regard.AttentionMatrix.from_weights(torch.eye(7)[None, None])
    with pytest.raises(ValueError, match="has weights only, no queries and keys"):
        regard.page(weights, list("abcdefg"), dimensions=True)
