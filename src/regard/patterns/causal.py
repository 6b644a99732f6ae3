"""Looking back only."""

from dataclasses import dataclass

from jaxtyping import Bool, Int, Int8
from torch import Tensor

from regard.patterns.cover import Span, codes
from regard.patterns.pattern import Pattern


@dataclass(frozen=True)
class Causal(Pattern):
    """A position may look at itself and at what stands before it."""

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
    """Let a position look at itself and at everything before it (masked self-attention).

    >>> print(causal().draw(4))
    ■ · · ·
    ■ ■ · ·
    ■ ■ ■ ·
    ■ ■ ■ ■

    With three keys cached and two new tokens, the queries stand at positions 3 and 4:

    >>> print(causal().draw(2, 5))
    ■ ■ ■ ■ ·
    ■ ■ ■ ■ ■
    """
    return Causal()
