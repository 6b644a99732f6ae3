"""A prompt as text, tokens and passages."""

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
    """What a model is given.

    Attributes:
        text: the text; of a conversation, what the chat template makes of it.
        ids: its tokens.
        offsets: where each token starts and stops in the text, in characters.
        passages: the passages, by their place in the text.
        special: whether the tokenizer was to add special tokens; chat templates have theirs.
    """

    text: str
    ids: list[int]
    offsets: list[tuple[int, int]]
    passages: list[Passage]
    special: bool

    @property
    def pieces(self) -> list[str]:
        """The text, token by token; what is in no token is at the beginning of the next."""
        ends = [0]
        for _, stop in self.offsets:
            ends.append(max(ends[-1], stop))
        return [self.text[start:stop] for start, stop in pairwise(ends)]


def prompt_of(tokenizer: Any, prompt: str | Messages, passages: Passages) -> Prompt:
    """Return a prompt with its tokens and passages.

    Of a conversation, the contents of its messages are split, and found again in what the chat
    template makes of them.

    Raises:
        TypeError: the prompt is neither a text nor messages with texts.
        ValueError: there is no message, the prompt has lone surrogates, the tokenizer does not tell
            where tokens are in the text or ends it, a message was changed by the template, or
            passages don't fit; see `spans_of`.
    """
    if isinstance(prompt, str):
        text, spans, special = prompt, spans_of(prompt, passages), True
    else:
        text = _templated(tokenizer, prompt)
        spans = _spans_in_messages(tokenizer, text, prompt, passages)
        special = False
    check_well_formed("prompt", text)
    if not spans:
        raise ValueError("the prompt has no passages")
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            f"{type(tokenizer).__name__} does not tell where tokens are in the text: use a fast "
            "tokenizer"
        )
    encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=special)
    offsets = [(int(start), int(stop)) for start, stop in encoded["offset_mapping"]]
    ids = [int(number) for number in encoded["input_ids"]]
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
        given = message if isinstance(message, Mapping) else {}  # pyright: ignore[reportUnnecessaryIsInstance]
        if not all(isinstance(given.get(part), str) for part in ("role", "content")):
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
    """Return where the passages of messages are in the text that a template made of them."""
    if not isinstance(passages, str):
        return spans_of(text, passages)
    # A short message may be a word of the template too, such as "user": see where names go.
    names = [f"\ue000{number}\ue001" for number in range(len(messages))]
    named = [{**one, "content": name} for one, name in zip(messages, names, strict=True)]
    template = _templated(tokenizer, named)
    found: list[tuple[int, int]] = []
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
        found += [(first + start, first + stop) for start, stop in spans_of(content, passages)]
        place = first + len(content)
    return found


def _next(text: str, words: str, place: int) -> int:
    """Return where words are in a text after a place and white space, which templates may strip."""
    first = text.find(words, place)
    return -1 if first < 0 or text[place:first].strip() else first
