"""A real decoder, SmolLM2-135M, gives what it gives in transformers, and writes the same text."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from materials import smollm2
from regard.models import TextDecoder

pytestmark = pytest.mark.slow

LIMIT = 1e-3
"""As a share of the largest logit."""

NUM_TOKENS = 64

TEXT = """
When in the Course of human events, it becomes necessary for one people to dissolve the political
bands which have connected them with another, and to assume among the powers of the earth, the
separate and equal station to which the Laws of Nature and of Nature's God entitle them, a decent
respect to the opinions of mankind requires that they should declare the causes which impel them
to the separation. We hold these truths to be self-evident, that all men are created equal, that
they are endowed by their Creator with certain unalienable Rights, that among these are Life,
Liberty and the pursuit of Happiness. That to secure these rights, Governments are instituted
among Men, deriving their just powers from the consent of the governed, That whenever any Form of
Government becomes destructive of these ends, it is the Right of the People to alter or to abolish
it, and to institute new Government, laying its foundation on such principles and organizing its
powers in such form, as to them shall seem most likely to effect their Safety and Happiness.
"""

PROMPTS = ["The capital of France is", "Water boils at a hundred degrees because the"]


class Real(NamedTuple):
    ours: TextDecoder
    theirs: LlamaForCausalLM
    text: Tensor
    prompts: list[Tensor]
    continued: list[Tensor]


@pytest.fixture(scope="module")
def real(quiet_transformers: None) -> Real:
    folder = smollm2()
    theirs = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    # So that nothing ends before its time.
    theirs.generation_config.eos_token_id = None
    theirs.generation_config.pad_token_id = None
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    prompts = [tokenizer(prompt, return_tensors="pt")["input_ids"] for prompt in PROMPTS]
    return Real(
        ours=TextDecoder.from_transformers(theirs),
        theirs=theirs,
        text=tokenizer(TEXT, return_tensors="pt")["input_ids"],
        prompts=prompts,
        continued=[
            theirs.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=NUM_TOKENS,
                do_sample=False,
            )
            for prompt in prompts
        ],
    )


def test_the_logits_of_a_text(real: Real) -> None:
    assert real.text.shape[1] > 200
    with torch.no_grad():
        expected, found = real.theirs(real.text).logits, real.ours(real.text)
    assert found.shape == expected.shape
    assert (found - expected).abs().max() / expected.abs().max() < LIMIT


def test_the_choices_are_clear(real: Real) -> None:
    """What two programs must choose alike must be better than the next by more than rounding."""
    for prompt, text in zip(real.prompts, real.continued, strict=True):
        assert text.shape == (1, prompt.shape[1] + NUM_TOKENS)
        with torch.no_grad():
            logits = real.theirs(text).logits[0, prompt.shape[1] - 1 : -1]
        first, second = logits.topk(2).values.unbind(dim=-1)
        assert (first - second).min() > LIMIT


@pytest.mark.parametrize("cached", [True, False])
def test_the_same_text(real: Real, cached: bool) -> None:
    found = real.ours.generate(real.prompts[0], NUM_TOKENS, cached=cached)
    assert torch.equal(found, real.continued[0])


def test_prompts_of_different_lengths(real: Real) -> None:
    lengths = [prompt.shape[1] for prompt in real.prompts]
    longest = max(lengths)
    starts = [longest - length for length in lengths]
    assert sorted(starts)[0] == 0 < sorted(starts)[1]
    padded = torch.cat(
        [
            torch.nn.functional.pad(prompt, (start, 0), value=11)
            for prompt, start in zip(real.prompts, starts, strict=True)
        ]
    )
    found = real.ours.generate(padded, NUM_TOKENS, starts=starts)
    assert found.shape == (2, longest + NUM_TOKENS)
    for row, start, expected in zip(found, starts, real.continued, strict=True):
        assert torch.equal(row[start:], expected[0])
