"""Direct shares in a logit, against sums written out."""

from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)

from regard.interventions import LogitShares, logit_shares
from regard.models import TextDecoder
from tests.small import EXPERTS, GROUPED, HIDDEN

TOKENS = torch.arange(3, 16)[None]
pytestmark = pytest.mark.usefixtures("quiet_transformers")


def drawn(model: nn.Module, dtype: torch.dtype = torch.float64) -> Any:
    """Return a model whose every parameter is random, so that no bias is 0 and no gain 1."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval().requires_grad_(False).to(dtype)


def gpt2() -> Any:
    return drawn(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4)))


def ours() -> TextDecoder:
    return TextDecoder(vocabulary_size=50, model_dim=32, num_layers=2, num_heads=4)


def shares_of(model: Any, **options: Any) -> LogitShares:
    return logit_shares(model, lambda: model(TOKENS), 7, **options)


def logits_of(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found = model(TOKENS)
    return getattr(found, "logits", found)[0]


@pytest.mark.parametrize(
    ("model", "dtype", "tolerance"),
    [
        (ours, torch.float64, 1e-12),
        (gpt2, torch.float64, 1e-12),
        (lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**HIDDEN)), torch.float64, 1e-12),
        # Norms of Llama are computed in float32, whatever the model's dtype.
        (lambda: LlamaForCausalLM(LlamaConfig(**GROUPED)), torch.float64, 1e-5),
        (lambda: LlamaForCausalLM(LlamaConfig(**GROUPED)), torch.float32, 1e-5),
        (lambda: GptOssForCausalLM(GptOssConfig(**GROUPED, **EXPERTS)), torch.float32, 1e-4),
    ],
    ids=["ours", "gpt2", "neox", "llama", "llama in float32", "gpt-oss"],
)
def test_all_shares_add_up_to_the_logit(model: Any, dtype: torch.dtype, tolerance: float) -> None:
    model = drawn(model(), dtype)
    logits = logits_of(model).double()
    shares = shares_of(model)
    assert shares.logit == pytest.approx(float(logits[-1, 7]), abs=tolerance)
    shares = shares_of(model, against=9, position=-4)
    assert shares.logit == pytest.approx(float(logits[-4, 7] - logits[-4, 9]), abs=tolerance)


def test_each_share_is_that_of_its_part() -> None:
    """Take GPT-2 apart by hand: what each head writes, through the frozen last norm."""
    model = gpt2()
    states: dict[str, torch.Tensor] = {}
    for number, block in enumerate(model.transformer.h):
        for name, module in (("heads", block.attn.c_proj), ("mlp", block.mlp)):

            def take(_: Any, got: Any, out: Any, key: str = f"{name} {number}") -> None:
                states[key] = (got[0] if key.startswith("heads") else out)[0, -1]

            module.register_forward_hook(take)
    with torch.no_grad():
        embedding = model(TOKENS, output_hidden_states=True).hidden_states[0][0, -1]
    norm = model.transformer.ln_f
    residual = embedding.clone()
    for number, block in enumerate(model.transformer.h):
        residual += states[f"heads {number}"] @ block.attn.c_proj.weight + block.attn.c_proj.bias
        residual += states[f"mlp {number}"]
    scale = (residual.var(correction=0) + norm.eps).rsqrt()

    def through(part: torch.Tensor) -> torch.Tensor:
        return ((part - part.mean(-1, keepdim=True)) * scale * norm.weight) @ row

    row = model.lm_head.weight[7] - model.lm_head.weight[9]
    shares = shares_of(model, against=9)
    torch.testing.assert_close(shares.embedding, float(through(embedding)))
    torch.testing.assert_close(shares.constant, float(norm.bias @ row))
    for number, block in enumerate(model.transformer.h):
        weight = block.attn.c_proj.weight.view(4, 8, 32)
        heads = states[f"heads {number}"].view(4, 1, 8) @ weight
        torch.testing.assert_close(shares.heads[number], through(heads[:, 0]))
        torch.testing.assert_close(shares.mlps[number], through(states[f"mlp {number}"]))
        torch.testing.assert_close(shares.biases[number], through(block.attn.c_proj.bias))
    torch.testing.assert_close(shares.tokens.sum(dim=2), shares.heads)
    assert shares.tokens.shape == (2, 4, 13)


def test_tokens_after_the_position_have_no_share() -> None:
    shares = shares_of(gpt2(), position=-3)
    assert bool((shares.tokens[:, :, -2:] == 0).all())
    assert bool((shares.tokens[:, :, :-2] != 0).all())


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (
            lambda: GraniteForCausalLM(GraniteConfig(**GROUPED, residual_multiplier=0.5)),
            r"layers\.0 does not add attention and one other module to its input",
        ),
        (
            lambda: Gemma2ForCausalLM(Gemma2Config(**GROUPED, final_logit_softcapping=None)),
            r"layers\.0 does not add attention and one other module to its input",
        ),
        (
            lambda: Gemma2ForCausalLM(Gemma2Config(**GROUPED)),
            "its logits are not a norm and a linear layer",
        ),
    ],
    ids=["scaled residuals", "norms after attention", "softcap"],
)
def test_other_models_are_refused(model: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=f"can't take this model apart: .*{reason}"):
        shares_of(drawn(model()))


def test_wrong_arguments() -> None:
    model = gpt2()
    with pytest.raises(ValueError, match="position must be negative, counted from the end, got 3"):
        shares_of(model, position=3)
    with pytest.raises(ValueError, match="position must be from −13 to −1, got -14"):
        shares_of(model, position=-14)
    with pytest.raises(ValueError, match="against must be from 0 to 49, got 50"):
        shares_of(model, against=50)
    with pytest.raises(ValueError, match=r"must return logits \[1, positions, vocabulary\], got"):
        logit_shares(model, lambda: model(TOKENS.expand(2, -1)), 7)
    with pytest.raises(ValueError, match=r"must have float32 or float64, got torch\.bfloat16"):
        shares_of(model.bfloat16())
