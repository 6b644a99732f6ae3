"""Texts of examples, split into highlighted and other pieces."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from regard.atlas.labels import Row

AROUND = 160
"""Characters kept on each side of a highlight."""

Piece = tuple[str, str]
"""A piece of a text, and its kind: "query", "key", "both" or ""."""


@dataclass(frozen=True)
class HighlightSpan:
    """Characters of a text, from `start` up to and excluding `end`."""

    start: int
    end: int

    def trimmed(self, text: str) -> "HighlightSpan":
        """Clip the span to the text, and strip spaces."""
        start, end = (max(0, min(len(text), place)) for place in (self.start, self.end))
        marked = text[start:end]
        if not marked.strip():
            return HighlightSpan(start, max(start, end))
        before = len(marked) - len(marked.lstrip())
        return HighlightSpan(start + before, start + len(marked.rstrip()))


def pieces_of(text: str, query: HighlightSpan, key: HighlightSpan) -> list[Piece]:
    """Split a text at highlights, and shorten it far from them.

    Args:
        text: the text.
        query: the query.
        key: the key.

    >>> pieces_of("The cat sat", HighlightSpan(8, 11), HighlightSpan(3, 7))
    [('The ', ''), ('cat', 'key'), (' ', ''), ('sat', 'query')]
    """
    spans = {"query": query.trimmed(text), "key": key.trimmed(text)}
    edges = {0, len(text)} | {edge for span in spans.values() for edge in (span.start, span.end)}
    places = sorted(edges)
    pieces: list[Piece] = []
    for start, end in pairwise(places):
        names = [name for name, span in spans.items() if span.start <= start and end <= span.end]
        kind = "both" if len(names) == 2 else "".join(names)
        part = text[start:end]
        kept = part if kind else _shortened(part, start == 0, end == len(text))
        pieces.append((kept, kind))
    return pieces


def example_of(row: Row, head: int) -> dict[str, Any]:
    """Return an example in the report's format."""
    query, key = (
        HighlightSpan(row[f"{name}_start"], row[f"{name}_end"]) for name in ("query", "key")
    )
    return {
        "head": head,
        "weight": float(row["weight"]),
        "document": str(row["document"] or ""),
        "pieces": pieces_of(str(row["text"] or ""), query, key),
    }


def _shortened(text: str, opens: bool, closes: bool) -> str:
    """Shorten a text to its ends that are next to a highlight."""
    head = "" if opens else text[:AROUND]
    tail = "" if closes else text[-AROUND:]
    if len(text) <= len(head) + len(tail) + 1 or (opens and closes):
        return text
    # Whole words, unless they are very long.
    head = head[: head.rfind(" ") + 1] or head
    tail = tail[tail.find(" ") :] if " " in tail else tail
    return f"{head}…{tail}"
