"""A few example pairs of each head, independent of the order of counting."""

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass
from typing import Any

EXAMPLES = 8
"""Examples per head."""

_CONTEXT = 160


@dataclass(frozen=True, order=True)
class Example:
    """A query and its strongest key.

    Attributes:
        priority: examples with the largest are kept. It is a random number seeded by the name of
            the window, and larger for larger weights.
        weight: the weight of the key.
        document: the document's name.
        text: the text around both.
        query_start: start of the query in the text.
        query_end: end of the query.
        key_start: start of the key.
        key_end: end of the key.
    """

    priority: float
    weight: float
    document: str
    text: str
    query_start: int
    query_end: int
    key_start: int
    key_end: int


class Examples:
    """The examples with the largest priorities of each head."""

    def __init__(self) -> None:
        self._kept: defaultdict[tuple[int, int], list[Example]] = defaultdict(list)

    def would_keep(self, call: int, head: int, priority: float) -> bool:
        """Return whether an example of this priority may be kept; `add` decides ties."""
        kept = self._kept[call, head]
        return len(kept) < EXAMPLES or priority >= kept[0].priority

    def add(self, call: int, head: int, example: Example) -> None:
        """Add an example if it is among the best."""
        kept = self._kept[call, head]
        if len(kept) < EXAMPLES:
            heapq.heappush(kept, example)
        elif example > kept[0]:
            heapq.heapreplace(kept, example)

    def merge(self, other: "Examples") -> None:
        """Keep the best of both."""
        for call, head, example in other:
            self.add(call, head, example)

    def __iter__(self) -> Iterator[tuple[int, int, Example]]:
        """Yield call, head and example, by head, the highest priority first."""
        for (call, head), kept in sorted(self._kept.items()):
            for example in sorted(kept, reverse=True):
                yield call, head, example

    def as_data(self) -> list[list[Any]]:
        """Return lists of plain values."""
        return [[call, head, *astuple(example)] for call, head, example in self]

    @classmethod
    def from_data(cls, data: list[list[Any]]) -> "Examples":
        """Return the examples of `as_data`."""
        examples = cls()
        for call, head, *values in data:
            examples.add(call, head, Example(*values))
        return examples

    def rows(self) -> list[dict[str, Any]]:
        """Return rows of a table."""
        return [{"layer": call, "head": head, **asdict(example)} for call, head, example in self]


def excerpt(
    text: str, query: tuple[int, int], key: tuple[int, int]
) -> tuple[str, tuple[int, int], tuple[int, int]]:
    """Shorten a text to the surroundings of two spans; return it and the spans in it."""
    first, second = sorted((query, key))
    start, stop = max(0, first[0] - _CONTEXT // 2), min(len(text), second[1] + _CONTEXT // 2)
    begin, end = first[1] + _CONTEXT // 2, second[0] - _CONTEXT // 2
    if end - begin > _CONTEXT:
        left = text[start:begin] + " … "
        shortened, shift = left + text[end:stop], len(left) - end
    else:
        shortened, shift = text[start:stop], -start

    def moved(place: tuple[int, int]) -> tuple[int, int]:
        by = -start if place == first else shift
        return place[0] + by, place[1] + by

    return shortened, moved(query), moved(key)
