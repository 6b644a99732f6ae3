"""Causal masks."""

from dataclasses import dataclass

from jaxtyping import Bool, Int, Int8
from torch import Tensor

from regard.patterns.cover import Span, codes
from regard.patterns.pattern import Pattern


@dataclass(frozen=True)
class Causal(Pattern):
    """Each position attends to itself and to earlier ones."""

    relative = True

    def test(
        self, batch: Int[Tensor, "..."], query: Int[Tensor, "..."], key: Int[Tensor, "..."]
    ) -> Bool[Tensor, "..."]:
        return key <= query

    def cover_spans(self, batch: Int[Tensor, "..."], query: Span, key: Span) -> Int8[Tensor, "..."]:
        return codes(none=key.first > query.last, every=key.last <= query.first, batch=batch)

    def __repr__(self) -> str:
        return "causal()"


def causal() -> Pattern:
    """Let each position attend to itself and to earlier ones (masked self-attention).

    >>> print(causal().draw(4))
    ■ · · ·
    ■ ■ · ·
    ■ ■ ■ ·
    ■ ■ ■ ■

    With three cached keys and two new tokens, the queries have positions 3 and 4:

    >>> print(causal().draw(2, 5))
    ■ ■ ■ ■ ·
    ■ ■ ■ ■ ■
    """
    return Causal()
