"""What is kept of a text."""

from pathlib import Path

import pytest
import torch

from regard import AttentionMatrix
from regard.recording import Recording, open, save
from tests.recording.conftest import Made, tokens_of


def recorded(path: Path, tokens: list[str], **options: object) -> Recording:
    x = torch.randn(1, 1, len(tokens), 4)
    save(AttentionMatrix(x, x), path / "it.regard", tokens=tokens, **options)
    return open(path / "it.regard")


def test_tokens_and_text_come_back(tmp_path: Path) -> None:
    text = "An  apple\n\ntrée 🍎."
    tokens = ["[CLS]", "an", "apple", "tr", "##ée", "🍎", ".", "[SEP]"]
    found = recorded(tmp_path, tokens, text=text).texts[0]
    assert found.text == text
    assert found.tokens == tokens
    assert found.pieces == ["[CLS]", "An", "  apple", "\n\ntr", "ée", " 🍎", ".", "[SEP]"]


def test_offsets_are_taken_as_given(tmp_path: Path) -> None:
    found = recorded(tmp_path, ["a", "b", "c"], text="x yy", offsets=[(0, 1), (1, 4), (1, 4)])
    assert found.texts[0].pieces == ["x", " yy", ""]


def test_without_a_text_tokens_are_made_readable(made: Made) -> None:
    assert "".join(made.recording.texts[0].pieces[:9]) == "Call me Ishmael. Some years ago\n"


def test_tokens_that_are_not_in_the_text_are_shown_as_they_are(tmp_path: Path) -> None:
    found = recorded(tmp_path, ["un", "related", "tokens", "here"], text="Something else.")
    assert found.texts[0].pieces == ["un", " related", " tokens", " here"]


def test_hostile_tokens_come_back_as_they_are(tmp_path: Path) -> None:
    tokens = [
        "</script><img src=x onerror=alert(1)>",
        "\u202egnp.exe",
        "\x00\x07",
        "",
        "x" * 10_000,
    ]
    assert recorded(tmp_path, tokens).tokens == tokens
    assert recorded(tmp_path / "..", ["\ud800", "a"], overwrite=True).tokens == ["?", "a"]


def test_search(made: Made) -> None:
    found, more = made.recording.search("ISHMAEL", count=3)
    assert (found, more) == ([(2, 3), (11, 12), (20, 21)], True)
    assert made.recording.search("ishmael. some", start=12)[0][0] == (20, 23)
    assert made.recording.search("whale") == ([], False)
    with pytest.raises(ValueError, match="the search text must not be empty"):
        made.recording.search("")
    with pytest.raises(IndexError, match="1 texts, counted from 0, got number 1"):
        made.recording.search("me", number=1)


def test_headings_become_sections(tmp_path: Path) -> None:
    text = "CHAPTER 1. Loomings.\n\nCall me.\n\n## The end\nof it"
    tokens = ["CHAPTER", "1", ".", "Loomings", ".", "Call", "me", ".", "#", "#", "The", "end", "of"]
    found = recorded(tmp_path, [*tokens, "it"], text=text).sections
    assert [(one.token, one.title) for one in found] == [
        (0, "CHAPTER 1. Loomings."),
        (8, "The end"),
    ]


def test_sections_can_be_given(tmp_path: Path) -> None:
    found = recorded(tmp_path, tokens_of(20), sections=[(0, "One"), (9, "Two")]).sections
    assert [(one.token, one.title) for one in found] == [(0, "One"), (9, "Two")]
