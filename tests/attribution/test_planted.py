"""A fact among passages, found again in SmolLM2."""

from typing import Any

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

import regard
from materials import moby_dick, smollm2
from regard.attribution.passages import spans_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet_transformers")]


SEA, CAPTAIN, WIND = (
    "The sea was calm, and nobody spoke.",
    "The captain had not been seen since the morning.",
    "A cold wind came from the north.",
)


@pytest.fixture(scope="module")
def loaded() -> tuple[Any, Any]:
    model = AutoModelForCausalLM.from_pretrained(smollm2()).eval()
    return model, AutoTokenizer.from_pretrained(smollm2())


def test_an_ignored_passage_opposes_the_answer(loaded: tuple[Any, Any]) -> None:
    passages = [SEA, "Since last year, the capital of France is Lyon.", CAPTAIN, WIND]
    asked = "Question: What is the capital of France?\nAnswer: The capital of France is"
    found = regard.attribute(
        *loaded, "\n".join([*passages, asked]), None, passages, max_new_tokens=2
    )
    assert found.answer == " Paris."
    assert found.scores.argmin() == 1
    assert found.scores[1] < -1.0
    checked = found.verify(4)
    assert checked.exact[checked.passages.index(1)] < -0.5


def test_each_word_has_its_passage(loaded: tuple[Any, Any]) -> None:
    monday, friday = "On Monday, Harriet bought a violin.", "On Friday, Harriet bought a kite."
    passages = [SEA, monday, CAPTAIN, friday, WIND]
    asked = "Question: Which two things did Harriet buy?\nAnswer: Harriet bought a"
    given = ("\n".join([*passages, asked]), " violin and a kite", passages)
    found = regard.attribute(*loaded, *given, each_token=True)
    assert found.by_token is not None
    assert found.by_token.argmax(dim=1)[[0, 3]].tolist() == [1, 3]
    # The guide says where gradients end: a word that is certain already hardly has any.
    hidden = regard.attribute(*loaded, *given, how="leave-one-out")
    assert found.scores[3] < 0 < hidden.scores[3]


def test_the_planted_passage_comes_first(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    book = moby_dick().read_text(encoding="utf-8")[60_000:70_000].replace("\n", " ")
    sentences = [book[start:stop] for start, stop in spans_of(book, "sentences")]
    passages = [one for one in sentences if 60 < len(one) < 160][:8]
    passages[2] = "Oliver bought a bicycle last week."
    passages[5] = "Harriet bought a telescope last week."
    question = "Question: What did Harriet buy last week?\nAnswer: Harriet bought a"
    prompt = "\n".join([*passages, question])
    found = regard.attribute(model, tokenizer, prompt, " telescope", passages)
    assert found.top(1)[0][0].text == passages[5]
    checked = found.verify(1)
    # What the answer loses without the passage, and without another.
    assert checked.exact[0] > 2.0
    assert checked.exact[0] > 4 * checked.exact[1].abs()
    by_attention = regard.attribute(
        model, tokenizer, prompt, " telescope", passages, how="attention"
    )
    assert by_attention.top(1)[0][0].text == passages[0]
