"""Not looking at padding."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Bool, Int, Int8
from torch import Tensor

from regard.patterns.cover import Span, codes
from regard.patterns.pattern import Pattern
from regard.patterns.whole import whole_numbers


@dataclass(frozen=True, eq=False)
class Padding(Pattern):
    """In sequence b every position may look at the first `lengths[b]` positions."""

    lengths: Int[Tensor, "batch"]

    @property
    def batch_size(self) -> int:
        return len(self.lengths)

    def test(
        self, batch: Int[Tensor, "..."], query: Int[Tensor, "..."], key: Int[Tensor, "..."]
    ) -> Bool[Tensor, "..."]:
        return key < self.lengths.to(key.device)[batch]

    def cover_spans(self, batch: Int[Tensor, "..."], query: Span, key: Span) -> Int8[Tensor, "..."]:
        length = self.lengths.to(batch.device)[batch]
        return codes(none=key.first >= length, every=key.last < length, batch=batch)

    def check(self, batch: int, queries: range, num_keys: int) -> None:
        if batch != self.batch_size:
            raise ValueError(
                f"padding: lengths must name one length per sequence, "
                f"got {self.batch_size} lengths for a batch of {batch}"
            )
        longest = int(self.lengths.max())
        if longest > num_keys:
            raise ValueError(
                f"padding: lengths must not exceed the number of keys ({num_keys}), got {longest}"
            )

    def __repr__(self) -> str:
        return f"padding({self.lengths.tolist()})"


def padding(lengths: Sequence[int] | Int[Tensor, "batch"]) -> Pattern:
    """Hide the padding at the end of each sequence of a batch: only keys are hidden, not queries.

    >>> print(padding([2, 3]).draw(3))
    ■ ■ ·
    ■ ■ ·
    ■ ■ ·
    <BLANKLINE>
    ■ ■ ■
    ■ ■ ■
    ■ ■ ■

    Args:
        lengths: how many positions of each sequence are real, [batch].
    """
    values = whole_numbers(lengths)
    if values is None or values.dim() != 1 or len(values) == 0:
        raise ValueError(
            f"padding: lengths must be a list of whole numbers, one per sequence, got {lengths!r}"
        )
    if int(values.min()) < 0:
        raise ValueError(f"padding: lengths must be at least 0, got {int(values.min())}")
    return Padding(values)
