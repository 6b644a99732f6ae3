"""A real model on `attend`."""

from typing import Any

import pytest
import torch
import transformers

import regard
import regard.hf
from materials import smollm2

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(quiet_transformers: None) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(smollm2()).eval()


@pytest.fixture(scope="module")
def tokens() -> torch.Tensor:
    tokenizer = transformers.AutoTokenizer.from_pretrained(smollm2())
    text = "The lighthouse keeper counted the ships that passed, and wrote each name down. " * 40
    return torch.tensor([tokenizer(text)["input_ids"]])


@torch.no_grad()
def test_logits_are_those_of_sdpa(model: Any, tokens: torch.Tensor) -> None:
    model.set_attn_implementation("sdpa")
    before = model(tokens).logits
    after = regard.hf.use(model)(tokens).logits
    assert tokens.shape[1] > 400
    assert (after - before).abs().max() < 1e-3 * before.abs().max()


@torch.no_grad()
def test_a_window_is_what_a_mask_of_the_same_shape_is(model: Any, tokens: torch.Tensor) -> None:
    near = regard.window(before=63)
    places = torch.arange(tokens.shape[1])
    allowed = (near & regard.causal()).allows(places, places)[None, None]
    model.set_attn_implementation("sdpa")
    masked = model(tokens, attention_mask=allowed).logits
    windowed = regard.hf.use(model, pattern=near)(tokens).logits
    free = regard.hf.use(model)(tokens).logits
    assert (windowed - masked).abs().max() < 1e-3 * masked.abs().max()
    assert (free - masked).abs().max() > 0.01 * masked.abs().max()
