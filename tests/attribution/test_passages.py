"""Passages of a prompt."""

import re

import pytest
from tokenizers.processors import TemplateProcessing

from regard.attribution.passages import spans_of, with_tokens
from regard.attribution.prompt import prompt_of
from tests.attribution.models import tokenizer

TEXT = 'One is here. "Two!" Said three, e.g. this.\n  Four\n\n\nFive '


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("paragraphs", ['One is here. "Two!" Said three, e.g. this.\n  Four', "Five"]),
        ("lines", ['One is here. "Two!" Said three, e.g. this.', "Four", "Five"]),
        ("sentences", ["One is here.", '"Two!"', "Said three, e.g. this.", "Four", "Five"]),
        (["Five", "Two"], ["Five", "Two"]),
        ([(0, 3), (20, 24)], ["One", "Said"]),
    ],
)
def test_splits(split: object, expected: list[str]) -> None:
    assert [TEXT[start:stop] for start, stop in spans_of(TEXT, split)] == expected  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("words", "passages must be one of paragraphs, lines, sentences, a list of texts or"),
        (["Six"], "passage 'Six' is not in the prompt"),
        (["is"], "passage 'is' is in the prompt twice: pass spans (start, stop)"),
        ([(3, 3)], "a passage must be a span of the prompt's 57 characters, got (3, 3)"),
        ([(0, 59)], "a passage must be a span of the prompt's 57 characters, got (0, 59)"),
        ([(0, 9), (8, 10)], "passages must not overlap, got one up to 9 and one (8, 10)"),
    ],
)
def test_what_is_no_passage_is_refused(wrong: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        spans_of(TEXT, wrong)  # pyright: ignore[reportArgumentType]


def test_tokens_belong_to_the_passage_in_which_their_word_starts() -> None:
    # Tokens with the space before their word, as in GPT-2, and one without characters.
    text, offsets = "An apple. A tree", [(0, 0), (0, 2), (2, 8), (8, 9), (9, 11), (11, 16)]
    found = with_tokens(text, [(0, 9), (10, 16)], offsets)
    assert [passage.tokens for passage in found] == [range(1, 4), range(4, 6)]
    assert [passage.text for passage in found] == ["An apple.", "A tree"]
    with pytest.raises(ValueError, match="passage 'pp' has no token of its own"):
        with_tokens(text, [(4, 6)], offsets)


def test_passages_of_messages_are_found_in_what_the_template_makes_of_them() -> None:
    messages = [
        {"role": "user", "content": "  Harriet bought a violin .\nThe sea was calm .\n"},
        {"role": "user", "content": "what did Harriet buy ?"},
    ]
    found = prompt_of(tokenizer(), messages, "lines")
    assert found.text.endswith("bot :")
    texts = ["Harriet bought a violin .", "The sea was calm .", "what did Harriet buy ?"]
    assert [passage.text for passage in found.passages] == texts
    for passage in found.passages:
        assert passage.text == found.text[passage.start : passage.stop]
        words = [found.text[slice(*found.offsets[token])] for token in passage.tokens]
        assert words == passage.text.split()


def test_messages_are_not_taken_for_words_of_the_template() -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": "user"}]
    # The template says "user" before each message, and something of its own before all.
    words = tokenizer()
    assert isinstance(words.chat_template, str)
    words.chat_template = "what was a user ?\n" + words.chat_template
    found = prompt_of(words, messages, "lines")
    assert found.text == "what was a user ?\nuser : a\nuser : user\nbot :"
    assert [passage.start for passage in found.passages] == [25, 34]


@pytest.mark.parametrize("content", ["one.content", "one.content.lower()"])
def test_templates_may_keep_spaces_and_change_nothing_else(content: str) -> None:
    words = tokenizer()
    words.chat_template = (
        "{% for one in messages %}{{ one.role }} : {{ " + content + " }}\n{% endfor %}"
    )
    messages = [{"role": "user", "content": " The sea\n"}, {"role": "bot", "content": "was calm"}]
    if content == "one.content":
        found = prompt_of(words, messages, "lines")
        assert [passage.text for passage in found.passages] == ["The sea", "was calm"]
    else:
        with pytest.raises(ValueError, match="the chat template has changed the message 'The sea'"):
            prompt_of(words, messages, "lines")


def test_pieces_join_to_the_text() -> None:
    found = prompt_of(tokenizer(), "Harriet bought  a\nviolin .", "lines")
    assert found.pieces == ["Harriet", " bought", "  a", "\nviolin", " ."]


def test_a_tokenizer_that_ends_the_prompt_is_refused() -> None:
    """An answer would be scored as what comes after the end."""
    ending = tokenizer()
    ending.add_special_tokens({"eos_token": "</s>"})
    ending.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", ending.eos_token_id)]
    )
    with pytest.raises(ValueError, match=r"^the tokenizer ends the prompt with '</s>', after"):
        prompt_of(ending, "The sea", "lines")
    messages = [{"role": "user", "content": "The sea </s>"}]
    assert prompt_of(ending, messages, "lines").passages[0].text == "The sea </s>"


def test_messages_without_text_are_refused() -> None:
    with pytest.raises(TypeError, match="a message must have a role and a text as content"):
        prompt_of(tokenizer(), [{"role": "user"}], "lines")
    with pytest.raises(ValueError, match="prompt must be a text or messages, got no message"):
        prompt_of(tokenizer(), [], "lines")
