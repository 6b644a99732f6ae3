"""Windows of plain text, and of repeated random tokens."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from regard.atlas.documents import Document
from regard.atlas.window import TokenWindow

REPEATS = 8
"""Windows of repeated random tokens per survey."""

_REPEATED = 128


def text_windows(document: Document, tokenizer: Any, length: int) -> Iterator[TokenWindow]:
    """Yield the windows of a document, each with the tokenizer's special tokens.

    Args:
        document: the text.
        tokenizer: a fast tokenizer of transformers.
        length: maximum tokens per window.
    """
    found = tokenizer(
        document.text,
        truncation=True,
        max_length=length,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
    )
    columns = (found["input_ids"], found["offset_mapping"], found["special_tokens_mask"])
    for number, (ids, offsets, special) in enumerate(zip(*columns, strict=True)):
        places = [place for place, added in zip(offsets, special, strict=True) if not added]
        if not places:
            continue
        start, stop = places[0][0], max(stop for _, stop in places)
        yield TokenWindow(
            kind="text",
            name=f"{document.name}/{number}",
            ids=tuple(ids),
            offsets=tuple(
                (0, 0) if added else (first - start, last - start)
                for (first, last), added in zip(offsets, special, strict=True)
            ),
            special=tuple(bool(added) for added in special),
            text=document.text[start:stop],
        )


def repeated_windows(tokenizer: Any, length: int, seed: int) -> Iterator[TokenWindow]:
    """Yield windows of different random tokens, repeated once.

    Only induction heads attend to the token after an earlier copy there, as there is nothing else
    to predict from.

    Args:
        tokenizer: a tokenizer of transformers.
        length: maximum tokens per window.
        seed: the random seed.
    """
    chance = np.random.default_rng(seed)
    before, after = _added(tokenizer)
    words = np.setdiff1d(np.arange(tokenizer.vocab_size), tokenizer.all_special_ids)
    half = min(_REPEATED, (length - len(before) - len(after)) // 2, len(words))
    for number in range(REPEATS if half > 1 else 0):
        some = chance.choice(words, half, replace=False).tolist()
        ids = (*before, *some, *some, *after)
        yield TokenWindow(
            kind="repeats",
            name=f"repeats#{number}",
            ids=ids,
            offsets=((0, 0),) * len(ids),
            special=(True,) * len(before) + (False,) * 2 * half + (True,) * len(after),
            text="",
        )


def _added(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the special tokens that a tokenizer adds before and after a text."""
    found = tokenizer("a", return_special_tokens_mask=True)
    ids, special = found["input_ids"], found["special_tokens_mask"]
    first = special.index(0)
    last = len(special) - special[::-1].index(0)
    return ids[:first], ids[last:]
