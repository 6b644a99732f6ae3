"""A real model, watched."""

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import regard
from examples.known_heads import induction, previous, strongest
from materials import moby_dick, smollm2
from regard.matrix import Entropy, Received

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet_transformers")]


@pytest.fixture(scope="module")
def model(quiet_transformers: None) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(smollm2()).eval()


@pytest.fixture(scope="module")
def tokens() -> Tensor:
    tokenizer = transformers.AutoTokenizer.from_pretrained(smollm2())
    book = moby_dick().read_text(encoding="utf-8")[:6_000]
    return torch.tensor([tokenizer(book)["input_ids"][:1_024]])


@torch.no_grad()
def test_nothing_changes_and_all_is_seen(model: Any, tokens: Tensor) -> None:
    before = model(tokens).logits
    with regard.watch(model) as seen:
        after = model(tokens).logits
    assert torch.equal(before, after)
    seen.verify()
    assert [call.module for call in seen] == [f"model.layers.{n}.self_attn" for n in range(30)]
    assert {(call.heads, call.key_heads) for call in seen} == {(9, 3)}
    assert {str(call.pattern) for call in seen} == {"causal()"}


@torch.no_grad()
def test_heads_are_those_of_eager_attention(tokens: Tensor) -> None:
    short = tokens[:, :256]
    eager = transformers.AutoModelForCausalLM.from_pretrained(
        smollm2(), attn_implementation="eager"
    ).eval()
    expected = eager(short, output_attentions=True).attentions
    with regard.watch(eager) as seen:
        eager(short)
    for call, weights in zip(seen, expected, strict=True):
        assert (call.matrix.dense() - weights).abs().max() < 1e-5


@torch.no_grad()
def test_summaries_on_the_way_are_those_of_the_matrix(model: Any, tokens: Tensor) -> None:
    reductions = (Entropy(), Received())
    with regard.watch(model, keep=reductions, where=[3, 20]) as summed:
        model(tokens)
    with regard.watch(model, where=[3, 20]) as seen:
        model(tokens)
    for one, other in zip(summed, seen, strict=True):
        entropy, received = other.matrix.summarize(*reductions)
        torch.testing.assert_close(one.results[0].nats, entropy.nats)
        torch.testing.assert_close(one.results[1].mean, received.mean)


def test_the_heads_that_copy(model: Any) -> None:
    found = strongest(induction(model), 5)
    assert [(layer, head) for layer, head, _ in found[:2]] == [(18, 6), (17, 3)]
    scores = {(layer, head): score for layer, head, score in found}
    assert scores[18, 6] == pytest.approx(0.9, abs=0.05)
    assert scores[17, 3] == pytest.approx(0.8, abs=0.05)


def test_the_head_that_looks_at_the_previous_token(model: Any, tokens: Tensor) -> None:
    (layer, head, score), *_ = strongest(previous(model, tokens), 3)
    assert (layer, head) == (16, 0)
    assert score > 0.7


@torch.no_grad()
def test_a_generated_text_is_stitched(model: Any, tokens: Tensor) -> None:
    prompt = tokens[:, :64]
    with regard.watch(model) as seen:
        text = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=16, do_sample=False
        )
    with regard.watch(model) as whole:
        model(text[:, :-1])
    for step, full in zip(seen.stitched(), whole, strict=True):
        assert step.module == full.module
        assert (step.matrix.dense() - full.matrix.dense()).abs().max() < 1e-5
