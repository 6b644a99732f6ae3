"""A pattern whose positions are counted from elsewhere."""

from dataclasses import dataclass

from jaxtyping import Bool, Int, Int8
from torch import Tensor

from regard.patterns.cover import Span
from regard.patterns.pattern import Pattern


@dataclass(frozen=True)
class Shifted(Pattern):
    """What a pattern allows to positions that lie further on by some numbers.

    Attributes:
        pattern: the pattern.
        queries: what is added to the position of a query before the pattern is asked.
        keys: what is added to that of a key.
    """

    pattern: Pattern
    queries: int
    keys: int

    @property
    def relative(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.pattern.relative

    @property
    def key_only(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.pattern.key_only

    @property
    def batch_size(self) -> int | None:
        return self.pattern.batch_size

    @property
    def num_positions(self) -> int | None:
        known = self.pattern.num_positions
        return None if known is None else max(0, known - self.keys)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.pattern.tensors

    def test(
        self, batch: Int[Tensor, "..."], query: Int[Tensor, "..."], key: Int[Tensor, "..."]
    ) -> Bool[Tensor, "..."]:
        return self.pattern.test(batch, query + self.queries, key + self.keys)

    def cover_spans(self, batch: Int[Tensor, "..."], query: Span, key: Span) -> Int8[Tensor, "..."]:
        queries = Span(query.first + self.queries, query.last + self.queries)
        keys = Span(key.first + self.keys, key.last + self.keys)
        return self.pattern.cover_spans(batch, queries, keys)

    def check(self, batch: int, queries: range, num_keys: int) -> None:
        moved = range(queries.start + self.queries, queries.stop + self.queries)
        self.pattern.check(batch, moved, num_keys + self.keys)

    def __repr__(self) -> str:
        return f"shifted({self.pattern!r}, queries={self.queries}, keys={self.keys})"
