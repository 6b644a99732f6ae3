"""A prompt as text, tokens and passages, and the tokens of an answer after it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from regard.attribution.passages import Passage, Passages, spans_of, with_tokens
from regard.printable import check_well_formed

Messages = Sequence[Mapping[str, str]]
"""A conversation: messages with "role" and "content"."""


@dataclass(frozen=True)
class Prompt:
    """The prompt of a model.

    Attributes:
        text: the text; of a conversation, as the chat template formats it.
        ids: its tokens.
        offsets: start and stop of each token in the text, in characters.
        passages: the passages, in the order of the text.
        special: whether the tokenizer adds special tokens; chat templates have theirs.
    """

    text: str
    ids: list[int]
    offsets: list[tuple[int, int]]
    passages: list[Passage]
    special: bool

    @property
    def pieces(self) -> list[str]:
        """The text, token by token; characters of no token begin the next."""
        ends = [0]
        for _, stop in self.offsets:
            ends.append(max(ends[-1], stop))
        return [self.text[start:stop] for start, stop in pairwise(ends)]


def prompt_of(tokenizer: Any, prompt: str | Messages, passages: Passages) -> Prompt:
    """Return a prompt with its tokens and passages.

    Of a conversation, the contents of its messages are split, and found again in the text of the
    chat template.

    Raises:
        TypeError: the prompt is neither a text nor messages with texts.
        ValueError: there is no message, the prompt has lone surrogates, the tokenizer does not tell
            where tokens are in the text or ends it, a message was changed by the template, or
            passages don't fit; see `spans_of`.
    """
    # 1. The text and its passages.
    if isinstance(prompt, str):
        text, spans, special = prompt, spans_of(prompt, passages), True
    else:
        text = _templated(tokenizer, prompt)
        spans = _spans_in_messages(tokenizer, text, prompt, passages)
        special = False
    check_well_formed("prompt", text)
    if not spans:
        raise ValueError("the prompt has no passages")

    # 2. Its tokens.
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            f"{type(tokenizer).__name__} does not tell where tokens are in the text: use a fast "
            "tokenizer"
        )
    encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=special)
    offsets = [(int(start), int(stop)) for start, stop in encoded["offset_mapping"]]
    ids = [int(number) for number in encoded["input_ids"]]

    # 3. A special token at the end has no characters.
    last = ids[-1] if offsets[-1][0] == offsets[-1][1] else None
    if last in tokenizer.all_special_ids:
        raise ValueError(
            f"the tokenizer ends the prompt with {tokenizer.convert_ids_to_tokens(last)!r}, after "
            "which no answer goes on: use one without, as with add_eos_token=False"
        )
    return Prompt(text, ids, offsets, with_tokens(text, sorted(spans), offsets), special)


def _templated(tokenizer: Any, messages: Messages) -> str:
    if not messages:
        raise ValueError("prompt must be a text or messages, got no message")
    for message in messages:
        parts = message if isinstance(message, Mapping) else {}  # pyright: ignore[reportUnnecessaryIsInstance]
        if not all(isinstance(parts.get(name), str) for name in ("role", "content")):
            raise TypeError(f"a message must have a role and a text as content, got {message!r}")
    return str(
        tokenizer.apply_chat_template(
            list(messages),
            tokenize=False,
            add_generation_prompt=messages[-1]["role"] != "assistant",
        )
    )


def _spans_in_messages(
    tokenizer: Any, text: str, messages: Messages, passages: Passages
) -> list[tuple[int, int]]:
    """Return the spans of the passages of messages in the text of the chat template."""
    if not isinstance(passages, str):
        return spans_of(text, passages)

    # 1. A short message may be a word of the template too, such as "user": see where names go.
    names = [f"\ue000{number}\ue001" for number in range(len(messages))]
    named = [{**message, "content": name} for message, name in zip(messages, names, strict=True)]
    template = _templated(tokenizer, named)

    # 2. Each message, after the template's own words before it.
    spans: list[tuple[int, int]] = []
    place = 0
    for message, name in zip(messages, names, strict=True):
        before, _, template = template.partition(name)
        content = message["content"].strip()
        place = _next(text, before, place)
        first = -1 if place < 0 else _next(text, content, place + len(before))
        if first < 0:
            raise ValueError(
                f"the chat template has changed the message {content[:60]!r}: pass the texts of "
                "the passages, or their spans in the templated text"
            )
        spans += [(first + start, first + stop) for start, stop in spans_of(content, passages)]
        place = first + len(content)
    return spans


def _next(text: str, words: str, place: int) -> int:
    """Return the index of words in a text after a place and white space, which templates strip."""
    first = text.find(words, place)
    return -1 if first < 0 or text[place:first].strip() else first


def tokenized(tokenizer: Any, prompt: Prompt, answer: str) -> list[int]:
    """Return the tokens of an answer that follows a prompt.

    Raises:
        TypeError: the answer is not a text.
        ValueError: it has no tokens, the tokenizer does not know some of it, or it can't go on
            after the tokens of the prompt.
    """
    if not isinstance(answer, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"answer must be a text, got {answer!r}")
    check_well_formed("answer", answer)
    tokens = _tokens_after(tokenizer, prompt, answer)
    if not tokens:
        raise ValueError(f"the answer has no tokens, got {answer!r}")

    unknown = tokenizer.unk_token
    # Some tokenizers name an ordinary token as the unknown one, which an answer may spell out.
    if unknown and tokens.count(tokenizer.unk_token_id) > answer.count(unknown):
        raise ValueError(
            f"answer must be made of known tokens, got {answer!r}, which is tokenized as "
            f"{tokenizer.convert_ids_to_tokens(tokens)}"
        )
    return tokens


def _tokens_after(tokenizer: Any, prompt: Prompt, answer: str) -> list[int]:
    """Return the tokens of an answer after those of a prompt.

    On its own, an answer would begin a text, to which some tokenizers add a space.
    """
    text = prompt.text + answer
    together: list[int] = tokenizer(text, add_special_tokens=prompt.special)["input_ids"]
    if together[: len(prompt.ids)] == prompt.ids:
        return together[len(prompt.ids) :]

    # The last token of the prompt would be joined with the first of the answer.
    alone: list[int] = tokenizer(answer, add_special_tokens=False)["input_ids"]
    spelled, expected = (
        tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        for ids in (prompt.ids + alone, together)
    )
    if expected == text != spelled:
        raise ValueError(
            f"the answer {answer[:60]!r} can't go on after the last token of the prompt, "
            f"{tokenizer.convert_ids_to_tokens(prompt.ids[-1])!r}: move a space from the end of "
            "the prompt to the beginning of the answer"
        )
    return alone
