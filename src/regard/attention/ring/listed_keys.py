"""Patterns and biases of some of the keys."""

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int, Int8
from torch import Tensor

from regard.patterns.pairs import PositionSet
from regard.patterns.pattern import Pattern, Span, codes
from regard.positions import Bias


@dataclass(frozen=True)
class KeysAmong(Pattern):
    """Every query attends to some of the keys. Block-shaped, unlike `pairs`."""

    keys: PositionSet

    def test(
        self, batch: Int[Tensor, "..."], query: Int[Tensor, "..."], key: Int[Tensor, "..."]
    ) -> Bool[Tensor, "..."]:
        return self.keys.has(key) & (query == query)

    def cover_spans(self, batch: Int[Tensor, "..."], query: Span, key: Span) -> Int8[Tensor, "..."]:
        none, every = self.keys.covers(key)
        rows = query.first == query.first
        return codes(none & rows, every & rows, batch)


@dataclass(frozen=True, eq=False)
class PatternOfListed(Pattern):
    """A pattern whose keys are counted in a list of positions.

    Attributes:
        pattern: the pattern.
        positions: position of each key.
    """

    pattern: Pattern
    positions: Int[Tensor, "keys"]

    @property
    def batch_size(self) -> int | None:
        return self.pattern.batch_size

    def test(
        self, batch: Int[Tensor, "..."], query: Int[Tensor, "..."], key: Int[Tensor, "..."]
    ) -> Bool[Tensor, "..."]:
        return self.pattern.test(batch, query, self.positions.to(key.device)[key])


@dataclass(frozen=True, eq=False)
class BiasOfListed:
    """A bias whose keys are counted in a list of positions; attributes as for `PatternOfListed`."""

    bias: Bias
    positions: Int[Tensor, "keys"]

    relative = False

    @property
    def additive(self) -> bool:
        return self.bias.additive

    @property
    def batch_size(self) -> int | None:
        return self.bias.batch_size

    @property
    def num_heads(self) -> int | None:
        return self.bias.num_heads

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.bias.tensors

    def adjust(
        self,
        scores: Float[Tensor, "*#pairs"],
        batch: Int[Tensor, "*#pairs"],
        head: Int[Tensor, "*#pairs"],
        query: Int[Tensor, "*#pairs"],
        key: Int[Tensor, "*#pairs"],
    ) -> Float[Tensor, "..."]:
        return self.bias.adjust(scores, batch, head, query, self.positions.to(key.device)[key])
