"""The tokens of a part of a text."""

from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoTokenizer

import regard
from materials import minilm, smollm2

TEXT = "The café is closed. Is the café open?  No, the café is closed."


@pytest.fixture(scope="module", params=[smollm2, minilm], ids=["bytes", "WordPiece"])
def tokenizer(request: Any) -> Any:
    return AutoTokenizer.from_pretrained(request.param())


@pytest.mark.parametrize(("part", "count"), [("café is closed", 2), ("café", 3), ("open", 1)])
def test_each_occurrence(tokenizer: Any, part: str, count: int) -> None:
    encoded = tokenizer(TEXT)["input_ids"]
    every = regard.spans(tokenizer, TEXT, part)
    assert len(every) == count
    for number, span in enumerate(every):
        assert tokenizer.decode(encoded[span.start : span.stop]).strip() in (
            part,
            part.replace("é", "e"),
        )
        assert regard.spans(tokenizer, TEXT, part, number) == [span]


def test_a_part_of_a_token(tokenizer: Any) -> None:
    (whole,) = regard.spans(tokenizer, TEXT, "open")
    assert regard.spans(tokenizer, TEXT, "pe") == [whole]
    (before,) = regard.spans(tokenizer, TEXT, "open?")
    assert before == range(whole.start, whole.stop + 1)


def test_refusals(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match=r"^part: 'tea' is not in the text$"):
        regard.spans(tokenizer, TEXT, "tea")
    with pytest.raises(ValueError, match=r"^part: ' ' is not in the text$"):
        regard.spans(tokenizer, TEXT, " ")
    with pytest.raises(ValueError, match=r"^nth: 'café' is 3 times in the text, got 3$"):
        regard.spans(tokenizer, TEXT, "café", 3)
    with pytest.raises(TypeError, match=r"^tokenizer must be a fast one of transformers, .* got S"):
        regard.spans(SimpleNamespace(is_fast=False), TEXT, "café")


def test_texts_that_are_cut_off(tokenizer: Any) -> None:
    class Cut:
        is_fast = True

        def __call__(self, text: str, **options: Any) -> Any:
            return tokenizer(text, truncation=True, max_length=6, **options)

    with pytest.raises(ValueError, match=r"^part: the tokens end before 'open', the tokenizer tr"):
        regard.spans(Cut(), TEXT, "open")
