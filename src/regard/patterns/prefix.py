"""Prefix masks."""

from dataclasses import dataclass

from jaxtyping import Bool, Int, Int8
from torch import Tensor

from regard.patterns.cover import Span, codes
from regard.patterns.pattern import Pattern
from regard.patterns.whole import whole_number


@dataclass(frozen=True)
class Prefix(Pattern):
    """Every position attends to the first `length` positions."""

    length: int

    key_only = True

    def __post_init__(self) -> None:
        if self.length < 0:
            raise ValueError(f"prefix: length must be at least 0, got {self.length}")

    def test(
        self, batch: Int[Tensor, "..."], query: Int[Tensor, "..."], key: Int[Tensor, "..."]
    ) -> Bool[Tensor, "..."]:
        return key < self.length

    def cover_spans(self, batch: Int[Tensor, "..."], query: Span, key: Span) -> Int8[Tensor, "..."]:
        return codes(none=key.first >= self.length, every=key.last < self.length, batch=batch)

    def __repr__(self) -> str:
        return f"prefix({self.length})"


def prefix(length: int) -> Pattern:
    """Let every position attend to the first `length` positions.

    With `causal` it is the mask of a prefix language model, bidirectional on its prompt:

    >>> from regard.patterns import causal
    >>> print((causal() | prefix(3)).draw(5))
    ■ ■ ■ · ·
    ■ ■ ■ · ·
    ■ ■ ■ · ·
    ■ ■ ■ ■ ·
    ■ ■ ■ ■ ■

    Args:
        length: length of the prefix, at least 0.
    """
    return Prefix(whole_number("prefix: length", length))
