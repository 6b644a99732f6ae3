"""A recorded text: tokens, offsets, search."""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from regard.calls.tokens import readable
from regard.recording import arrays
from regard.recording.arrays import StoredArray
from regard.recording.errors import RecordingError
from regard.recording.schema import MOST_BYTES, Section, TextFacts

Offsets = Sequence[tuple[int, int]]
"""Start and end of each token in a text, in characters; equal for tokens outside of it."""

_HEADING = re.compile(
    r"^(?:#{1,6}\s+\S.*|(?:CHAPTER|Chapter|BOOK|Book|PART|Part|ACT|SCENE)\b.{0,80}|"
    r"(?:PREFACE|PROLOGUE|EPILOGUE|INTRODUCTION|ETYMOLOGY|EXTRACTS)\b.{0,60})$",
    re.MULTILINE,
)


class RecordedText:
    """A text of a recording.

    Args:
        facts: its metadata.
        stored: its arrays, by name.
    """

    def __init__(self, facts: TextFacts, stored: Mapping[str, StoredArray]) -> None:
        self.facts, self._stored = facts, stored

    @property
    def name(self) -> str:
        """The name: "text"; "source" and "target"; or "text 64–99", its last tokens."""
        return self.facts.name

    @cached_property
    def text(self) -> str:
        """The text; "" if only its tokens are known."""
        return _string(self._stored["text"].read()) if self.facts.characters else ""

    @cached_property
    def tokens(self) -> list[str]:
        """The tokens as the tokenizer writes them."""
        data = self._stored["tokens"].read().tobytes()
        stops = self._stored["token_stops"].read()
        if int(np.diff(stops, prepend=0).min()) < 0 or int(stops[-1]) != len(data):
            raise RecordingError(f"{self.name} is damaged: the ends of its tokens must ascend")
        starts = [0, *stops[:-1].tolist()]
        return [
            data[start:stop].decode("utf-8", errors="replace")
            for start, stop in zip(starts, stops.tolist(), strict=True)
        ]

    @cached_property
    def offsets(self) -> NDArray[np.int64] | None:
        """Start and end of each token in the text, [tokens, 2]; None if unknown."""
        return self._stored["offsets"].read() if "offsets" in self._stored else None

    @cached_property
    def pieces(self) -> list[str]:
        """The text of each token; joined, they are the text."""
        if self.offsets is None:
            return readable(self.tokens)
        return _cut(self.text, self.offsets, readable(self.tokens))

    @cached_property
    def _joined(self) -> tuple[str, NDArray[np.int64]]:
        """The joined pieces, case-folded, and the end of each in it."""
        folded = [piece.casefold() for piece in self.pieces]
        return "".join(folded), np.cumsum([len(piece) for piece in folded])

    def search(self, wanted: str, start: int, count: int) -> tuple[list[tuple[int, int]], bool]:
        """Find a string, ignoring case.

        Args:
            wanted: the string.
            start: the first token to search.
            count: maximum number of matches.

        Returns:
            The first and the last token of each match, and whether there are more.
        """
        text, stops = self._joined
        wanted = wanted.casefold()
        if not wanted:
            raise ValueError("the search text must not be empty")
        if start > len(stops):
            return [], False
        place = int(stops[start - 1]) if start > 0 else 0
        found: list[tuple[int, int]] = []
        while (place := text.find(wanted, place)) >= 0:
            if len(found) == count:
                return found, True
            ends = (place, place + len(wanted) - 1)
            first, last = np.searchsorted(stops, ends, side="right").tolist()
            found.append((first, last))
            place += len(wanted)
        return found, False


def write_text(
    group: zarr.Group,
    number: int,
    tokens: Sequence[str],
    text: str | None,
    offsets: Offsets | None,
) -> list[Section]:
    """Write the tokens of a text, and the text if there is one.

    Args:
        group: the group to write to.
        number: the number of the text.
        tokens: its tokens.
        text: the text, if known.
        offsets: start and end of each token in it; by default they are found by search.

    Returns:
        Its headings.
    """
    encoded = [token.encode("utf-8", errors="replace") for token in tokens]
    stops = np.cumsum([len(token) for token in encoded], dtype=np.int64)
    _write_bytes(group, "tokens", b"".join(encoded))
    arrays.write(group, "token_stops", stops)
    if text is None:
        return []
    _write_bytes(group, "text", text.encode("utf-8", errors="replace"))
    listed = aligned(readable(tokens), text) if offsets is None else offsets
    if listed is None:
        return []
    found = np.asarray(listed, dtype=np.int64).reshape(-1, 2)
    if len(found) != len(tokens):
        raise ValueError(
            f"offsets must have a pair for each of {len(tokens)} tokens, got {len(found)}"
        )
    arrays.write(group, "offsets", found)
    return sections_of(text, found, number)


def _write_bytes(group: zarr.Group, name: str, data: bytes) -> None:
    if len(data) > MOST_BYTES:
        raise ValueError(f"{name} must have at most {MOST_BYTES:,} bytes, got {len(data):,}")
    arrays.write(group, name, np.frombuffer(data, dtype=np.uint8))


def aligned(pieces: Sequence[str], text: str) -> Offsets | None:
    """Find the offsets of consecutive pieces in a text; None if most are not found.

    >>> aligned(["[CLS]", " an", " apple", "[SEP]"], "An  apple")
    [(0, 0), (0, 2), (4, 9), (9, 9)]
    """
    folded = text.lower()
    if len(folded) != len(text):
        folded = text
    found: list[tuple[int, int]] = []
    place = missed = 0
    for piece in pieces:
        wanted = piece.strip().lower() if folded is not text else piece.strip()
        start = folded.find(wanted, place, place + len(wanted) + 64) if wanted else -1
        if start < 0:
            missed += 1
            found.append((place, place))
            continue
        place = start + len(wanted)
        found.append((start, place))
    return found if missed <= 2 + len(pieces) // 4 else None


def sections_of(text: str, offsets: NDArray[np.int64], number: int) -> list[Section]:
    """Find headings: Markdown, and lines such as "CHAPTER 1. Loomings".

    Args:
        text: the text.
        offsets: start and end of its tokens, [tokens, 2].
        number: the number of the text.
    """
    found: list[Section] = []
    for heading in _HEADING.finditer(text):
        token = int(np.searchsorted(offsets[:, 1], heading.start(), side="right"))
        title = " ".join(heading[0].lstrip("# ").split())[:200]
        if token < len(offsets):
            found.append(Section(text=number, token=token, title=title))
    return found


def _cut(text: str, offsets: NDArray[np.int64], known: Sequence[str]) -> list[str]:
    """Split a text by tokens; characters between two tokens belong to the later one."""
    pieces: list[str] = []
    done = 0
    for (start, stop), name in zip(offsets.tolist(), known, strict=True):
        if stop <= done:
            # A token outside of the text, or one of several tokens of one character.
            pieces.append(name.strip() if start == stop else "")
            continue
        pieces.append(text[done:stop])
        done = stop
    return pieces


def _string(values: NDArray[Any]) -> str:
    return values.tobytes().decode("utf-8", errors="replace")
