"""A window of tokens with offsets and annotations: one input of a model."""

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Mention:
    """A mention of an entity.

    Attributes:
        entity: its entity; mentions of the same entity corefer.
        first: the index of its first word.
        last: the index of its last word.
        head: the index of its head word, whose governor is outside of it.
    """

    entity: str
    first: int
    last: int
    head: int


@dataclass(frozen=True)
class Notes:
    """The annotations of the words of a window, in the order of its `words`.

    Attributes:
        forms: each word, as written.
        governors: the index of each word's governor; −1 if it is not in the window.
        relations: each word's dependency relation, such as "nsubj" or "obl:tmod".
        mentions: the mentions, in the order of their heads.
    """

    forms: tuple[str, ...]
    governors: tuple[int, ...]
    relations: tuple[str, ...]
    mentions: tuple[Mention, ...] = ()


@dataclass(frozen=True)
class TokenWindow:
    """One input of a model.

    Attributes:
        kind: "text", "sentence" (one annotated sentence) or "mentions" (a piece of a document with
            mentions).
        name: document and number, such as "books/moby.txt#3/0"; stable across runs.
        ids: the tokens, special ones included.
        offsets: the characters of `text` of each token; (0, 0) for special ones.
        special: whether the tokenizer added each token.
        text: the text.
        split: 0 if heads are chosen on it, 1 if they are scored on it; see `split_of`.
        words: the first token and one past the last of each word of annotated text.
        notes: the annotations of annotated text.
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
    """Return 0 or 1, by a stable hash of a document's name."""
    return hashlib.sha256(document.encode("utf-8", "surrogatepass")).digest()[0] % 2
