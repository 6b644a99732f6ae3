"""A fact among passages, found again in SmolLM2."""

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

import regard
from materials import moby_dick, smollm2
from regard.attribution.passages import spans_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet_transformers")]


def test_the_planted_passage_comes_first() -> None:
    model = AutoModelForCausalLM.from_pretrained(smollm2()).eval()
    tokenizer = AutoTokenizer.from_pretrained(smollm2())
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
