"""Tokens as pieces of text, in the alphabets of real tokenizers."""

from typing import Any, cast

import pytest
from transformers import AutoTokenizer

from materials import minilm, smollm2
from regard.calls.tokens import label, readable

SENTENCES = (
    "The animal didn't cross the street.",
    "“Ça va?” — naïve façades, 日本語 and 🙂!",
    "tabs\tand\nlines",
)


@pytest.mark.slow
@pytest.mark.parametrize("sentence", SENTENCES)
def test_bytes_read_as_the_text(sentence: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(smollm2())
    pieces = readable(tokenizer.tokenize(" " + sentence))
    # A character that is cut in two can't be shown in either half.
    whole = [piece for piece in pieces if "\ufffd" not in piece]
    assert "".join(pieces).startswith(" ")
    if len(whole) == len(pieces):
        assert "".join(pieces) == " " + sentence
    else:
        assert all(piece in " " + sentence for piece in whole)


@pytest.mark.slow
def test_words_read_as_the_text() -> None:
    tokenizer = AutoTokenizer.from_pretrained(minilm())
    pieces = readable(tokenizer.tokenize("An unbelievable street, too."))
    assert "".join(pieces) == "an unbelievable street, too."


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["▁An", "▁ap", "ple", "<0x0A>", "</s>"], [" An", " ap", "ple", "\n", "</s>"]),
        (["An", "Ġapple", "âĢľ", "Ċ", "<|end|>"], ["An", " apple", "“", "\n", "<|end|>"]),
        (["[CLS]", "play", "##ing", "##", "[SEP]"], ["[CLS]", " play", "ing", " ##", " [SEP]"]),
        (["an", "apple", "."], ["an", " apple", "."]),
        (["an ", "apple"], ["an ", "apple"]),
        ([], []),
        ([""], [""]),
        (["Ġ日本"], ["Ġ日本"]),
        (["M", "Ã¼", "ller"], ["M", "ü", "ller"]),
        (["æĹ¥", "æľ¬"], ["日", "本"]),
        (["▁Ġ", "orġ"], [" Ġ", "orġ"]),
        (["café", "au", "lait"], ["café", " au", " lait"]),
    ],
)
def test_alphabets(tokens: list[str], expected: list[str]) -> None:
    assert readable(tokens) == expected


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("tokens", ["a text", [1, 2], [None]])
def test_what_is_no_list_of_strings(tokens: object) -> None:
    with pytest.raises(TypeError, match="convert_ids_to_tokens"):
        readable(cast(Any, tokens))


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        (" it", "it"),
        ("\n", "↵"),
        ("\n\n", "↵↵"),
        ("\t", "⇥"),
        (" ", "␣"),
        ("\u3000", "␣"),
        ("", "∅"),
        ("\x07", "\ufffd"),
        ("\ud800", "\ufffd"),
        ("a" * 20, "a" * 13 + "…"),
        ("🙂", "🙂"),
    ],
)
def test_labels_are_visible(piece: str, expected: str) -> None:
    assert label(piece) == expected
