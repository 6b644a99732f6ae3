import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, BertModel

from regard import padding
from regard.models import TextEncoder
from tests.models.cases import assert_drops, direction, gradients_off, lively, off, peak, tokens_of

BATCH, LENGTH, VOCABULARY, MODEL_DIM = 3, 11, 37, 20
LENGTHS = [11, 5, 8]


def bert_model(kind: type = BertModel, **changes: object) -> torch.nn.Module:
    settings = {
        "vocab_size": VOCABULARY,
        "hidden_size": MODEL_DIM,
        "num_hidden_layers": 3,
        "num_attention_heads": 5,
        "intermediate_size": 31,
        "max_position_embeddings": 13,
        "type_vocab_size": 2,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "attn_implementation": "eager",
    }
    return lively(kind(BertConfig(**settings | changes))).eval()


TOKENS = tokens_of(BATCH, LENGTH, vocabulary=VOCABULARY)
TYPES = tokens_of(BATCH, LENGTH, vocabulary=3, seed=1) - 1
REAL = torch.arange(LENGTH) < torch.tensor(LENGTHS)[:, None]


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"])
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_every_state_and_matrix(activation: str, dtype: torch.dtype, limit: float) -> None:
    theirs = bert_model(hidden_act=activation).to(dtype)
    ours = TextEncoder.from_transformers(theirs)
    expected = theirs(
        TOKENS,
        token_type_ids=TYPES,
        attention_mask=REAL.long(),
        output_hidden_states=True,
        output_attentions=True,
    )
    states = ours.states(TOKENS, types=TYPES, pattern=padding(LENGTHS))
    assert len(states) == len(expected.hidden_states) == 4
    for found, state in zip(states, expected.hidden_states, strict=True):
        assert off(found[REAL], state[REAL]) < limit
    output = ours(TOKENS, types=TYPES, pattern=padding(LENGTHS))
    assert torch.equal(output, states[-1])
    matrices = ours.matrices(TOKENS, types=TYPES, pattern=padding(LENGTHS))
    for matrix, weights in zip(matrices, expected.attentions, strict=True):
        assert peak(weights) > 1.5
        found, dense = (x.transpose(1, 2)[REAL] for x in (matrix.dense(), weights))
        assert off(found, dense) < limit


def test_types_are_zero_by_default() -> None:
    theirs = bert_model()
    ours = TextEncoder.from_transformers(theirs)
    plain = ours(TOKENS)
    assert off(plain, theirs(TOKENS).last_hidden_state) < 1e-5
    assert torch.equal(plain, ours(TOKENS, types=torch.zeros_like(TOKENS)))
    assert off(ours(TOKENS, types=TYPES), plain) > 0.1


def test_gradients() -> None:
    theirs = bert_model().double()
    ours = TextEncoder.from_transformers(theirs)
    along = direction(torch.Size([BATCH, LENGTH, MODEL_DIM])) * REAL[..., None]
    expected = theirs(TOKENS, token_type_ids=TYPES, attention_mask=REAL.long()).last_hidden_state
    (expected * along).sum().backward()
    (ours(TOKENS, types=TYPES, pattern=padding(LENGTHS)) * along).sum().backward()
    assert gradients_off(ours, theirs) < 1e-10


def test_the_encoder_of_a_model_with_a_head() -> None:
    theirs = bert_model(BertForMaskedLM)
    ours = TextEncoder.from_transformers(theirs)
    expected = theirs(TOKENS, output_hidden_states=True).hidden_states[-1]
    assert off(ours(TOKENS), expected) < 1e-5


def test_dropout_is_taken_over() -> None:
    theirs = bert_model(hidden_dropout_prob=0.25, attention_probs_dropout_prob=0.125).train()
    ours = TextEncoder.from_transformers(theirs)
    assert_drops(ours, share=0.25, attention_share=0.125)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("is_decoder", True, "config must have is_decoder = False, got True"),
        ("add_cross_attention", True, "config must have add_cross_attention = False, got True"),
        (
            "position_embedding_type",
            "relative_key",
            "config must have position_embedding_type = 'absolute', got 'relative_key'",
        ),
        (
            "hidden_act",
            "tanh",
            'must have hidden_act one of "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", '
            "got 'tanh'",
        ),
    ],
)
def test_what_ours_has_not_is_refused(setting: str, value: object, message: str) -> None:
    theirs = bert_model()
    setattr(theirs.config, setting, value)
    with pytest.raises(ValueError, match=message):
        TextEncoder.from_transformers(theirs)
