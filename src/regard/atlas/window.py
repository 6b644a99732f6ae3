"""What a model reads at once: a few hundred tokens, where they stand, what was noted of them."""

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Mention:
    """Words that name someone or something.

    Attributes:
        entity: who or what is named; mentions with the same entity corefer.
        first: the number of its first word.
        last: the number of its last word.
        head: the number of the word that stands for it: the one governed from outside.
    """

    entity: str
    first: int
    last: int
    head: int


@dataclass(frozen=True)
class Notes:
    """What people noted of the words of a window, in the order of its `words`.

    Attributes:
        forms: each word, as written.
        governors: the number of the word that governs each, −1 where no word of the window does.
        relations: as what it is governed, such as "nsubj" or "obl:tmod".
        mentions: who and what is named, by the heads' order.
    """

    forms: tuple[str, ...]
    governors: tuple[int, ...]
    relations: tuple[str, ...]
    mentions: tuple[Mention, ...] = ()


@dataclass(frozen=True)
class TokenWindow:
    """What a model reads at once.

    Attributes:
        kind: "text", "sentence" (one annotated sentence) or "mentions" (a piece of a document with
            mentions).
        name: stable: document and number, such as "books/moby.txt#3/0".
        ids: the tokens, special ones included.
        offsets: the characters of `text` of each token; (0, 0) for special ones.
        special: which tokens the tokenizer added.
        text: what offsets count in.
        split: 0 if heads are chosen on it, 1 if they are scored on it; see `split_of`.
        words: of annotated text, the first token and one past the last of each word.
        notes: of annotated text, what was noted of the words.
    """

    kind: str
    name: str
    ids: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]
    special: tuple[bool, ...]
    text: str
    split: int = 0
    words: tuple[tuple[int, int], ...] = ()
    notes: Notes | None = None


def split_of(document: str) -> int:
    """Return 0 or 1, the same for a document's name whenever and wherever it is asked."""
    return hashlib.sha256(document.encode("utf-8", "surrogatepass")).digest()[0] % 2
