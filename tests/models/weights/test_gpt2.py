import pytest
import torch
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel, GPT2Model

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

BATCH, LENGTH, VOCABULARY = 3, 11, 37
TOKENS = tokens_of(BATCH, LENGTH, vocabulary=VOCABULARY)


def gpt2_model(kind: type = GPT2LMHeadModel, **changes: object) -> torch.nn.Module:
    settings = {
        "vocab_size": VOCABULARY,
        "n_positions": 13,
        "n_embd": 20,
        "n_layer": 3,
        "n_head": 5,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
        "attn_implementation": "eager",
    }
    return lively(kind(GPT2Config(**settings | changes))).eval()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": False},
        {"n_inner": 31},
        {"activation_function": "gelu"},
        {"activation_function": "gelu_pytorch_tanh"},
        {"activation_function": "relu", "n_inner": 7},
        {"activation_function": "silu"},
        {"layer_norm_epsilon": 0.5},
        {"n_head": 4, "n_layer": 2, "tie_word_embeddings": False},
    ],
)
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_logits_states_and_matrices(
    changes: dict[str, object], dtype: torch.dtype, limit: float
) -> None:
    theirs = gpt2_model(**changes).to(dtype)
    ours = TextDecoder.from_transformers(theirs)
    expected = theirs(TOKENS, output_hidden_states=True, output_attentions=True)
    assert off(ours(TOKENS), expected.logits) < limit
    # Their last state is normed already.
    *states, last = ours.states(TOKENS)
    for found, state in zip([*states, ours.norm(last)], expected.hidden_states, strict=True):
        assert off(found, state) < limit
    for matrix, weights in zip(ours.matrices(TOKENS), expected.attentions, strict=True):
        assert peak(weights) > 1.5
        assert off(matrix.dense(), weights) < limit


@pytest.mark.parametrize("tied", [True, False])
def test_gradients(tied: bool) -> None:
    theirs = gpt2_model(tie_word_embeddings=tied, n_inner=31).double()
    ours = TextDecoder.from_transformers(theirs)
    along = direction(torch.Size([BATCH, LENGTH, VOCABULARY]))
    (theirs(TOKENS).logits * along).sum().backward()
    (ours(TOKENS) * along).sum().backward()
    assert gradients_off(ours, theirs) < 1e-10


@pytest.mark.parametrize("tied", [True, False])
def test_tied_if_theirs_is(tied: bool) -> None:
    ours = TextDecoder.from_transformers(gpt2_model(tie_word_embeddings=tied))
    assert (ours.head.weight is ours.embedding.tokens.weight) is tied


@pytest.mark.parametrize("cached", [True, False])
def test_the_same_text(cached: bool) -> None:
    theirs = gpt2_model(n_positions=41, tie_word_embeddings=False)
    assert_writes_alike(theirs, TOKENS, cached=cached)


def test_dropout_is_taken_over() -> None:
    theirs = gpt2_model(resid_pdrop=0.25, embd_pdrop=0.25, attn_pdrop=0.125).train()
    ours = TextDecoder.from_transformers(theirs)
    assert_drops(ours, share=0.25, attention_share=0.125)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("add_cross_attention", True, "config must have add_cross_attention = False, got True"),
        ("embd_pdrop", 0.1, "config must have embd_pdrop = 0.0, got 0.1"),
        (
            "scale_attn_by_inverse_layer_idx",
            True,
            "config must have scale_attn_by_inverse_layer_idx = False, got True",
        ),
        ("scale_attn_weights", False, "config must have scale_attn_weights = True, got False"),
        (
            "activation_function",
            "quick_gelu",
            'must have activation_function one of "gelu", "gelu_new", .*, got \'quick_gelu\'',
        ),
    ],
)
def test_what_ours_has_not_is_refused(setting: str, value: object, message: str) -> None:
    theirs = gpt2_model()
    setattr(theirs.config, setting, value)
    with pytest.raises(ValueError, match=message):
        TextDecoder.from_transformers(theirs)


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        (GPT2Model, "transformer.wte.weight"),
        (GPT2ForSequenceClassification, "lm_head.weight"),
    ],
)
def test_a_model_that_scores_no_tokens_is_refused(kind: type, missing: str) -> None:
    with pytest.raises(ValueError, match=f'the model has no tensor "{missing}"'):
        TextDecoder.from_transformers(gpt2_model(kind))
