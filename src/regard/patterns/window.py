"""Sliding windows."""

from dataclasses import dataclass

from jaxtyping import Bool, Int, Int8
from torch import Tensor

from regard.patterns.cover import Span, codes
from regard.patterns.pattern import Pattern
from regard.patterns.whole import whole_number


@dataclass(frozen=True)
class Window(Pattern):
    """Position i attends to i − before … i + after."""

    before: int
    after: int = 0
    relative = True

    def __post_init__(self) -> None:
        for name, value in (("before", self.before), ("after", self.after)):
            if value < 0:
                raise ValueError(f"window: {name} must be at least 0, got {value}")

    def test(
        self, batch: Int[Tensor, "..."], query: Int[Tensor, "..."], key: Int[Tensor, "..."]
    ) -> Bool[Tensor, "..."]:
        return (key >= query - self.before) & (key <= query + self.after)

    def cover_spans(self, batch: Int[Tensor, "..."], query: Span, key: Span) -> Int8[Tensor, "..."]:
        return codes(
            none=(key.last < query.first - self.before) | (key.first > query.last + self.after),
            every=(key.first >= query.last - self.before) & (key.last <= query.first + self.after),
            batch=batch,
        )

    def __repr__(self) -> str:
        after = f", after={self.after}" if self.after else ""
        return f"window(before={self.before}{after})"


def window(before: int, after: int = 0) -> Pattern:
    """Let position i attend to i − before … i + after: before + 1 + after keys.

    >>> print(window(before=1, after=1).draw(5))
    ■ ■ · · ·
    ■ ■ ■ · ·
    · ■ ■ ■ ·
    · · ■ ■ ■
    · · · ■ ■

    Args:
        before: number of earlier positions, at least 0.
        after: number of later positions, at least 0.
    """
    return Window(whole_number("window: before", before), whole_number("window: after", after))
