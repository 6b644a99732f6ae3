"""Small models that generate texts, and one pass over all that they wrote."""

from typing import Any

import torch
import transformers
from torch import Tensor

import regard
from regard.capture import Seen
from tests.capture.zoo import BATCH, ZOO, Kind, made, text
from tests.installed import needs_asking
from tests.small import BART, T5

NEW, PROMPT = 6, 11
"""The prompt is longer than windows are, so that keys are dropped after it."""

LAYERS = 2
WRITERS = {
    "Llama": transformers.LlamaForCausalLM,
    "GPT-2": transformers.GPT2LMHeadModel,
    "Mistral": transformers.MistralForCausalLM,
    "Gemma 3": transformers.Gemma3ForCausalLM,
    "gpt-oss": transformers.GptOssForCausalLM,
    "Gemma 2": transformers.Gemma2ForCausalLM,
}
TRANSLATORS = {
    "T5": (transformers.T5ForConditionalGeneration, {**T5, "decoder_start_token_id": 0}),
    "BART": (transformers.BartForConditionalGeneration, BART),
}


def writer(name: str, attention: str | None = None) -> Any:
    model = made(Kind(WRITERS[name], ZOO[name].config, text), attention)
    return never_ending(model)


def translator(name: str) -> Any:
    kind, options = TRANSLATORS[name]
    needs_asking(kind)
    config = getattr(transformers, f"{name.capitalize() if name == 'BART' else name}Config")
    return never_ending(made(Kind(kind, config(**options), text)))


def never_ending(model: Any) -> Any:
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 2
    model.generation_config.forced_eos_token_id = None
    return model


def padded(side: str, length: int) -> Tensor:
    """Return which tokens are there, [batch, length]: all, or fewer of the later sequences."""
    counts = torch.tensor([length, length - 4, 3] if side == "left" else [length] * BATCH)
    return (torch.arange(length) >= length - counts[:, None]).long()


def generate(
    model: Any, prompt: Tensor, there: Tensor, *, new: int = NEW, **options: Any
) -> Tensor:
    options = {"max_new_tokens": new, "do_sample": False, "disable_compile": True, **options}
    return model.generate(prompt, attention_mask=there, **options)


def longer(there: Tensor, length: int) -> Tensor:
    return torch.cat([there, there.new_ones(len(there), length - there.shape[1])], dim=1)


def whole(model: Any, written: Tensor, there: Tensor) -> Seen:
    """Watch one pass over all tokens that were fed to the model."""
    fed = written[:, :-1]
    there = longer(there, fed.shape[1])
    # As generate() counts them.
    positions = (there.cumsum(dim=1) - 1).clamp(min=0)
    with regard.watch(model) as seen, torch.no_grad():
        model(fed, attention_mask=there, position_ids=positions, use_cache=False)
    return seen


def same_rows(found: Seen, expected: Seen, there: Tensor | None = None) -> None:
    """Compare all rows but those of padding, where kernels differ on what they are."""
    assert [call.module for call in found] == [call.module for call in expected]
    for one, other in zip(found, expected, strict=True):
        assert (one.kind, one.queries, one.keys) == (other.kind, other.queries, other.keys)
        weights, others = one.matrix.dense(), other.matrix.dense()
        if there is not None:
            rows = longer(there, weights.shape[2]).bool()
            weights, others = (x.transpose(1, 2)[rows] for x in (weights, others))
        torch.testing.assert_close(weights, others, rtol=0, atol=1e-5)
