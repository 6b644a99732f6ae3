"""The passages of a prompt: stretches of its text, and of its tokens."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import index

SPLITS = ("paragraphs", "lines", "sentences")
_CHOICES = f"one of {', '.join(SPLITS)}, a list of texts or a list of spans"

_SEPARATORS = {
    "paragraphs": re.compile(r"\n[^\S\n]*\n\s*"),
    "lines": re.compile(r"\s*\n\s*"),
    # After the end of a sentence, unless a lower-case letter follows ("e.g. this").
    "sentences": re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+(?![a-z])|\n\s*"),
}

Passages = str | Sequence[str] | Sequence[tuple[int, int]]
"""How to split a prompt, the texts of its passages, or their spans in characters."""


@dataclass(frozen=True)
class Passage:
    """A stretch of a prompt.

    Attributes:
        text: its text.
        start: its first character in the prompt.
        stop: the character after its last.
        tokens: its tokens.
    """

    text: str
    start: int
    stop: int
    tokens: range


def spans_of(prompt: str, passages: Passages) -> list[tuple[int, int]]:
    r"""Return the spans of passages in a prompt, in characters.

    Args:
        prompt: the text.
        passages: "paragraphs", "lines" or "sentences"; the texts of the passages, each of which
            must be in the prompt once, in any order; or spans (start, stop).

    Raises:
        TypeError: passages are neither a split nor a sequence of texts or spans.
        ValueError: there is no such split, a text is not in the prompt or is there twice, spans are
            outside of the prompt, or passages overlap.

    >>> spans_of("One.\n\nTwo, and\nthree.", "paragraphs")
    [(0, 4), (6, 21)]
    >>> spans_of("One. Two, e.g. three! Four", "sentences")
    [(0, 4), (5, 21), (22, 26)]
    """
    if isinstance(passages, str):
        if passages not in SPLITS:
            raise ValueError(f"passages must be {_CHOICES}, got {passages!r}")
        return list(_split(prompt, _SEPARATORS[passages]))
    if not isinstance(passages, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"passages must be {_CHOICES}, got {passages!r}")
    spans = [
        _span_of(prompt, passage) if isinstance(passage, str) else _checked(prompt, passage)
        for passage in passages
    ]
    for (_, stop), after in pairwise(sorted(spans)):
        if after[0] < stop:
            raise ValueError(f"passages must not overlap, got one up to {stop} and one {after}")
    return spans


def with_tokens(
    prompt: str, spans: Sequence[tuple[int, int]], offsets: Sequence[tuple[int, int]]
) -> list[Passage]:
    """Return passages with their tokens: those that start inside the span.

    Args:
        prompt: the text.
        spans: start and stop of each passage, in characters.
        offsets: start and stop of each token of the prompt, in characters.

    Raises:
        ValueError: a passage has no token.
    """
    return [
        Passage(prompt[start:stop], start, stop, _tokens(prompt, start, stop, offsets))
        for start, stop in spans
    ]


def _split(prompt: str, separator: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    start = 0
    for separated in [*separator.finditer(prompt), None]:
        stop = len(prompt)
        if separated is not None:
            # Closing quotes belong to the sentence before.
            stop = separated.start() + len(separated[0].rstrip())
        text = prompt[start:stop]
        if text.strip():
            first = start + len(text) - len(text.lstrip())
            yield first, first + len(text.strip())
        start = stop if separated is None else separated.end()


def _span_of(prompt: str, text: str) -> tuple[int, int]:
    first = prompt.find(text)
    if not text or first < 0:
        raise ValueError(f"passage {text[:60]!r} is not in the prompt")
    if prompt.find(text, first + 1) >= 0:
        raise ValueError(f"passage {text[:60]!r} is in the prompt twice: pass spans (start, stop)")
    return first, first + len(text)


def _checked(prompt: str, span: tuple[int, int]) -> tuple[int, int]:
    try:
        start, stop = map(index, span)
    except (TypeError, ValueError):
        raise TypeError(f"a passage must be a text or a span (start, stop), got {span!r}") from None
    if not 0 <= start < stop <= len(prompt):
        raise ValueError(
            f"a passage must be a span of the prompt's {len(prompt):,} characters, got {span}"
        )
    return start, stop


def _tokens(prompt: str, start: int, stop: int, offsets: Sequence[tuple[int, int]]) -> range:
    inside = [
        number
        for number, (first, last) in enumerate(offsets)
        if last > first and start <= _first_letter(prompt, first, last) < stop
    ]
    if not inside:
        raise ValueError(f"passage {prompt[start:stop][:60]!r} has no token of its own")
    return range(inside[0], inside[-1] + 1)


def _first_letter(prompt: str, first: int, last: int) -> int:
    """Return the start of a token without the space that many tokenizers put before a word."""
    piece = prompt[first:last]
    return first + (len(piece) - len(piece.lstrip()) if piece.strip() else 0)
