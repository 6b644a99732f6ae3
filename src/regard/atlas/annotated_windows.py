"""Windows of annotated text: single sentences, or several with their mentions."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from regard.atlas.annotated import AnnotatedDocument, Sentence, Word
from regard.atlas.window import Mention, Notes, TokenWindow

Tokenizer = Callable[..., Mapping[str, Any]]
"""A fast tokenizer of transformers."""

TOO_LONG = "sentence longer than the window"
NO_TOKENS = "sentence with a word that has no tokens"
AMONG_MENTIONS = ", among mentions"
"""A sentence may be skipped once by itself, and once in a longer window."""


@dataclass(frozen=True)
class _Tokens:
    """A tokenized text; attributes as for `TokenWindow`."""

    ids: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]
    special: tuple[bool, ...]


def sentence_windows(
    document: AnnotatedDocument, tokenizer: Tokenizer, length: int, split: int
) -> tuple[list[TokenWindow], Counter[str]]:
    """Make a window of each sentence of a document.

    Args:
        document: annotated text.
        tokenizer: a fast tokenizer of transformers.
        length: maximum number of tokens, special ones included.
        split: the split of the windows.

    Returns:
        windows of kind "sentence", named DOCUMENT/SENTENCE, and counts of skipped sentences by
        reason.
    """
    windows: list[TokenWindow] = []
    skipped: Counter[str] = Counter()
    for number, (sentence, tokens) in enumerate(_each(document.sentences, tokenizer)):
        words = _words(sentence, tokens)
        if _fits(sentence, tokens, length, skipped) and words is not None:
            name = f"{document.name}/{number}"
            windows.append(_window("sentence", name, sentence, tokens, words, split))
    return windows, skipped


def mention_windows(
    document: AnnotatedDocument, tokenizer: Tokenizer, length: int, split: int
) -> tuple[list[TokenWindow], Counter[str]]:
    """Split a document into windows of as many whole sentences as fit.

    Sentences are joined by a space. A skipped sentence ends the window before it.

    Args:
        document: annotated text.
        tokenizer: a fast tokenizer of transformers.
        length: maximum number of tokens, special ones included.
        split: the split of the windows.

    Returns:
        windows of kind "mentions" with at least two mentions each, named by the document and their
        first sentence, and counts of skipped sentences by reason.
    """
    skipped: Counter[str] = Counter()
    if sum(len(sentence.mentions) for sentence in document.sentences) < 2:
        return [], skipped
    every = list(_each(document.sentences, tokenizer))
    fits = [_fits(*one, length, skipped, AMONG_MENTIONS) for one in every]
    windows: list[TokenWindow] = []
    start = 0
    while start < len(every):
        if not fits[start]:
            start += 1
            continue
        end = next((place for place in range(start, len(every)) if not fits[place]), len(every))
        count, piece, tokens = _longest(every[start:end], tokenizer, length)
        words = _words(piece, tokens)
        if words is None:
            skipped[NO_TOKENS + AMONG_MENTIONS] += count
        elif len(piece.mentions) >= 2:
            name = f"{document.name}/{start}"
            windows.append(_window("mentions", name, piece, tokens, words, split))
        start += count
    return windows, skipped


def _fits(
    sentence: Sentence, tokens: _Tokens, length: int, skipped: Counter[str], where: str = ""
) -> bool:
    """Return whether a sentence fits into a window; count it as skipped if not."""
    if len(tokens.ids) > length:
        skipped[TOO_LONG + where] += 1
    elif _words(sentence, tokens) is None:
        skipped[NO_TOKENS + where] += 1
    else:
        return True
    return False


def _longest(
    every: Sequence[tuple[Sentence, _Tokens]], tokenizer: Tokenizer, length: int
) -> tuple[int, Sentence, _Tokens]:
    """Join as many of the first sentences as fit into a window; the first one always fits.

    Returns:
        their number, and the joined sentence.
    """
    special = sum(every[0][1].special)
    sizes = accumulate((len(tokens.ids) - special for _, tokens in every), initial=special)
    count = max(1, sum(size <= length for size in sizes) - 1)
    while True:
        joined = _joined([sentence for sentence, _ in every[:count]])
        ((_, tokens),) = _each([joined], tokenizer)
        # A joined text may have more tokens than its sentences.
        if len(tokens.ids) <= length or count == 1:
            return count, joined, tokens
        count -= 1


def _joined(sentences: Sequence[Sentence]) -> Sentence:
    """Join sentences with spaces; each keeps its own governors."""
    words: list[Word] = []
    mentions: list[Mention] = []
    start = 0
    for sentence in sentences:
        base = len(words)
        words += [
            replace(
                word,
                start=start + word.start,
                end=start + word.end,
                governor=word.governor if word.governor < 0 else base + word.governor,
            )
            for word in sentence.words
        ]
        mentions += [
            Mention(one.entity, base + one.first, base + one.last, base + one.head)
            for one in sentence.mentions
        ]
        start += len(sentence.text) + 1
    return Sentence(" ".join(one.text for one in sentences), tuple(words), tuple(mentions))


def _each(
    sentences: Sequence[Sentence], tokenizer: Tokenizer
) -> Iterator[tuple[Sentence, _Tokens]]:
    """Yield each sentence with its tokens."""
    if not sentences:
        return
    found = tokenizer(
        [sentence.text for sentence in sentences],
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
        # No warning about long texts: `_fits` handles them.
        verbose=False,
    )
    columns = (found["input_ids"], found["offset_mapping"], found["special_tokens_mask"])
    for sentence, ids, offsets, special in zip(sentences, *columns, strict=True):
        pairs = tuple((int(start), int(end)) for start, end in offsets)
        yield sentence, _Tokens(tuple(ids), pairs, tuple(map(bool, special)))


def _words(sentence: Sentence, tokens: _Tokens) -> tuple[tuple[int, int], ...] | None:
    """Return the first token and one past the last of each word; None if a word has none.

    A token belongs to every word with which it shares a character; it may begin with a space.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for number, (start, end) in enumerate(tokens.offsets):
        if not tokens.special[number]:
            for character in range(start, end):
                first.setdefault(character, number)
                last[character] = number
    words: list[tuple[int, int]] = []
    for word in sentence.words:
        known = [character for character in range(word.start, word.end) if character in first]
        if not known:
            return None
        words.append((first[known[0]], last[known[-1]] + 1))
    return tuple(words)


def _window(
    kind: str,
    name: str,
    sentence: Sentence,
    tokens: _Tokens,
    words: tuple[tuple[int, int], ...],
    split: int,
) -> TokenWindow:
    notes = Notes(
        forms=tuple(word.form for word in sentence.words),
        governors=tuple(word.governor for word in sentence.words),
        relations=tuple(word.relation for word in sentence.words),
        mentions=sentence.mentions,
    )
    text = (tokens.ids, tokens.offsets, tokens.special, sentence.text)
    return TokenWindow(kind, name, *text, split, words, notes)
