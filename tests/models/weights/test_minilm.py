"""A real encoder, MiniLM-L6, gives what it gives in transformers."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, BertModel

from materials import minilm
from regard import padding
from regard.models import TextEncoder
from regard.patterns import Pattern

pytestmark = pytest.mark.slow

LIMIT = 1e-5

PAIRS = [
    ("The cat sat on the mat.", "It looked at the dog."),
    ("Who sits where?", "Nobody knows!"),
    (
        "Attention lets every word of a sentence look at every other one, near or far,",
        "and a word that has found what it looked for says so with a large weight.",
    ),
    ("Yes", "no"),
]


class Real(NamedTuple):
    ours: TextEncoder
    theirs: BertModel
    tokens: Tensor
    types: Tensor
    real: Tensor

    @property
    def pattern(self) -> Pattern:
        return padding(self.real.sum(dim=1))

    def expected(self, types: Tensor) -> Any:
        with torch.no_grad():
            return self.theirs(
                self.tokens,
                attention_mask=self.real.long(),
                token_type_ids=types,
                output_hidden_states=True,
                output_attentions=True,
            )


@pytest.fixture(scope="module")
def real(quiet_transformers: None) -> Real:
    folder = minilm()
    theirs = AutoModel.from_pretrained(folder, local_files_only=True, attn_implementation="eager")
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    read = tokenizer(*map(list, zip(*PAIRS, strict=True)), padding=True, return_tensors="pt")
    return Real(
        ours=TextEncoder.from_transformers(theirs),
        theirs=theirs,
        tokens=read["input_ids"],
        types=read["token_type_ids"],
        real=read["attention_mask"].bool(),
    )


def test_the_sentences_are_of_different_lengths_and_both_types(real: Real) -> None:
    assert len(set(real.real.sum(dim=1).tolist())) == len(PAIRS)
    assert real.types[real.real].unique().tolist() == [0, 1]


@pytest.mark.parametrize("typed", [True, False])
def test_every_state(real: Real, typed: bool) -> None:
    types = real.types if typed else torch.zeros_like(real.types)
    expected = real.expected(types).hidden_states
    with torch.no_grad():
        given = {"types": types} if typed else {}
        states = real.ours.states(real.tokens, pattern=real.pattern, **given)
        output = real.ours(real.tokens, pattern=real.pattern, **given)
    assert len(states) == 7
    assert states[0].shape == (len(PAIRS), real.tokens.shape[1], 384)
    for found, state in zip([*states, output], [*expected, expected[-1]], strict=True):
        torch.testing.assert_close(found[real.real], state[real.real], rtol=0, atol=LIMIT)


def test_every_matrix(real: Real) -> None:
    expected = real.expected(real.types).attentions
    with torch.no_grad():
        matrices = real.ours.matrices(real.tokens, types=real.types, pattern=real.pattern)
    assert len(matrices) == 6
    for matrix, weights in zip(matrices, expected, strict=True):
        assert weights.shape[1] == 12
        found, dense = (x.transpose(1, 2)[real.real] for x in (matrix.dense(), weights))
        torch.testing.assert_close(found, dense, rtol=0, atol=LIMIT)


def test_a_sentence_alone_and_in_a_batch(real: Real) -> None:
    with torch.no_grad():
        together = real.ours(real.tokens, types=real.types, pattern=real.pattern)
        for row, is_real in enumerate(real.real):
            alone = real.ours(real.tokens[row, is_real][None], types=real.types[row, is_real][None])
            torch.testing.assert_close(together[row, is_real], alone[0], rtol=0, atol=LIMIT)
