"""Texts of examples as pieces, of which some are marked."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from regard.atlas.labels import Row

AROUND = 160
"""So many characters are kept on each side of what is marked; a longer text is shortened there."""

Piece = tuple[str, str]
"""A part of a text, and what it is: "query", "key", "both" or ""."""


@dataclass(frozen=True)
class HighlightSpan:
    """Characters of a text, from `start` up to but not including `end`."""

    start: int
    end: int

    def trimmed(self, text: str) -> "HighlightSpan":
        """Return the span within the text, without the spaces around what it marks."""
        start, end = (max(0, min(len(text), place)) for place in (self.start, self.end))
        marked = text[start:end]
        if not marked.strip():
            return HighlightSpan(start, max(start, end))
        before = len(marked) - len(marked.lstrip())
        return HighlightSpan(start + before, start + len(marked.rstrip()))


def pieces_of(text: str, query: HighlightSpan, key: HighlightSpan) -> list[Piece]:
    """Return a text cut where marks begin and end, and shortened far from them.

    Args:
        text: the text.
        query: from where a head looks.
        key: what it looks at.

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
    """Return an example as the report holds it."""
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
    """Return what is near the ends of a text at which something is marked."""
    head = "" if opens else text[:AROUND]
    tail = "" if closes else text[-AROUND:]
    if len(text) <= len(head) + len(tail) + 1 or (opens and closes):
        return text
    # Words are kept whole, if they are no monsters.
    head = head[: head.rfind(" ") + 1] or head
    tail = tail[tail.find(" ") :] if " " in tail else tail
    return f"{head}…{tail}"
