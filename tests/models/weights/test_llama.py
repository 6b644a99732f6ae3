import re

import pytest
import torch
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    LlamaModel,
)
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding

from regard.models import TextDecoder
from tests.models.cases import (
    assert_drops,
    assert_writes_alike,
    direction,
    gradients_off,
    lively,
    off,
    peak,
    tokens_of,
)

BATCH, LENGTH, VOCABULARY = 3, 23, 37
TOKENS = tokens_of(BATCH, LENGTH, vocabulary=VOCABULARY)

SHAPES = {
    "plain": {},
    "grouped": {"num_key_value_heads": 2},
    "one key head": {"num_key_value_heads": 1},
    "biases": {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 3},
    "wide heads": {"head_dim": 10, "num_key_value_heads": 2},
    "narrow heads": {"head_dim": 2, "attention_bias": True, "mlp_bias": True},
    "tied": {"tie_word_embeddings": True},
    "gelu": {"hidden_act": "gelu"},
    "large eps": {"rms_norm_eps": 0.5},
    "another base": {"rope_parameters": {"rope_type": "default", "rope_theta": 71.0}},
    "linear": {"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 3.0}},
    "llama3": {
        "head_dim": 16,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "yarn that keeps lengths": {
        "head_dim": 16,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 100.0,
            "factor": 4.0,
            "attention_factor": 1.0,
            "original_max_position_embeddings": 16,
        },
    },
}


def llama_model(kind: type = LlamaForCausalLM, **changes: object) -> torch.nn.Module:
    settings = {
        "vocab_size": VOCABULARY,
        "hidden_size": 24,
        "intermediate_size": 31,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "max_position_embeddings": 64,
        "bos_token_id": None,
        "eos_token_id": None,
        "attn_implementation": "eager",
    }
    return lively(kind(LlamaConfig(**settings | changes))).eval()


@pytest.fixture
def float64_throughout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let theirs compute norms and angles in float64, where it insists on float32."""

    def norm(self: LlamaRMSNorm, x: Tensor) -> Tensor:
        return self.weight * x / (x.square().mean(-1, keepdim=True) + self.variance_epsilon).sqrt()

    def angles(self: LlamaRotaryEmbedding, x: Tensor, position_ids: Tensor) -> tuple[Tensor, ...]:
        turned = position_ids[..., None].double() * self.inv_freq.double()
        turned = torch.cat([turned, turned], dim=-1)
        return turned.cos(), turned.sin()

    monkeypatch.setattr(LlamaRMSNorm, "forward", norm)
    monkeypatch.setattr(LlamaRotaryEmbedding, "forward", angles)


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_states_and_matrices(shape: str) -> None:
    theirs = llama_model(**SHAPES[shape])
    ours = TextDecoder.from_transformers(theirs)
    expected = theirs(TOKENS, output_hidden_states=True, output_attentions=True)
    assert off(ours(TOKENS), expected.logits) < 1e-5
    # Their last state is normed already.
    *states, last = ours.states(TOKENS)
    for found, state in zip([*states, ours.norm(last)], expected.hidden_states, strict=True):
        assert off(found, state) < 1e-5
    for matrix, weights in zip(ours.matrices(TOKENS), expected.attentions, strict=True):
        assert peak(weights) > 1.5
        assert off(matrix.dense(), weights) < 1e-5


@pytest.mark.usefixtures("float64_throughout")
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_and_gradients_in_float64(shape: str) -> None:
    theirs = llama_model(**SHAPES[shape], attn_implementation="sdpa").double()
    ours = TextDecoder.from_transformers(theirs)
    along = direction(torch.Size([BATCH, LENGTH, VOCABULARY]))
    expected, found = theirs(TOKENS).logits, ours(TOKENS)
    assert off(found, expected) < 1e-10
    (expected * along).sum().backward()
    (found * along).sum().backward()
    assert gradients_off(ours, theirs) < 1e-10


def test_positions_matter() -> None:
    # Otherwise the tests above would say nothing of the angles.
    base = llama_model()
    for shape in ("another base", "linear", "llama3", "yarn that keeps lengths"):
        plain = dict(SHAPES[shape]) | {"rope_parameters": None}
        scaled = llama_model(**SHAPES[shape])
        assert off(scaled(TOKENS).logits, llama_model(**plain)(TOKENS).logits) > 0.01
    assert off(base(TOKENS.flip(1)).logits.flip(1), base(TOKENS).logits) > 0.01


@pytest.mark.parametrize("cached", [True, False])
def test_the_same_text(cached: bool) -> None:
    theirs = llama_model(num_key_value_heads=2)
    assert_writes_alike(theirs, TOKENS, cached=cached)


def test_dropout_is_taken_over() -> None:
    ours = TextDecoder.from_transformers(llama_model(attention_dropout=0.125).train())
    assert_drops(ours, share=0.0, attention_share=0.125)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pretraining_tp": 2}, "config must have pretraining_tp = 1, got 2"),
        ({"mlp_bias": True}, "config must have mlp_bias = False, got True"),
        ({"attention_bias": True}, "config must have mlp_bias = True, got False"),
        ({"hidden_act": "relu"}, 'must have hidden_act one of "silu", "gelu", got \'relu\''),
    ],
)
def test_what_ours_has_not_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TextDecoder.from_transformers(llama_model(**changes))


MOVING = {
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    "longrope": {
        "rope_type": "longrope",
        "short_factor": [1.0, 2.0],
        "long_factor": [3.0, 5.0],
        "factor": 4.0,
        "original_max_position_embeddings": 16,
    },
    # Leaves lengths as they are, but turns faster once a text is longer than 16.
    "longrope that keeps lengths": {
        "rope_type": "longrope",
        "short_factor": [1.0, 2.0],
        "long_factor": [3.0, 5.0],
        "attention_factor": 1.0,
        "factor": 4.0,
        "original_max_position_embeddings": 16,
    },
}


@pytest.mark.parametrize("name", MOVING)
def test_positions_that_change_with_the_length_or_stretch_are_refused(name: str) -> None:
    rope = {"rope_theta": 100.0} | MOVING[name]
    message = (
        "the model's rotary frequencies must be fixed and unscaled, "
        f'got the rope type "{rope["rope_type"]}"'
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        TextDecoder.from_transformers(llama_model(rope_parameters=rope))


@pytest.mark.parametrize(
    ("kind", "missing"),
    [(LlamaModel, ".*"), (LlamaForSequenceClassification, "lm_head.weight")],
)
def test_a_model_that_scores_no_tokens_is_refused(kind: type, missing: str) -> None:
    with pytest.raises(ValueError, match=f'the model has no tensor "{missing}"'):
        TextDecoder.from_transformers(llama_model(kind))
