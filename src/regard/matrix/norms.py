"""Weights times the length of what is looked at."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from regard.matrix.derived import Derived
from regard.matrix.index import Index, read
from regard.matrix.source import Buffers, Fact, KeyColumns, QueryRows, WeightBlock


@dataclass(eq=False)
class Norms(Derived):
    """The weight of each pair times a number ≥ 0 for its key; a `Source`.

    Attributes:
        norms: [batch, heads, keys].
    """

    norms: Float[Tensor, "batch heads keys"]

    signed = False

    def check(self) -> None:
        self.weights.check()

    def rows(self, batch: range, heads: range, queries: Index) -> QueryRows:
        return self.weights.rows(batch, heads, queries)

    def has_lse(self, batch: range, heads: range, queries: Index) -> bool:
        return self.weights.has_lse(batch, heads, queries)

    def compute_lse(self, rows: QueryRows, columns: Sequence[KeyColumns], buffers: Buffers) -> None:
        self.weights.compute_lse(rows, columns, buffers)

    def block(
        self,
        rows: QueryRows,
        columns: Sequence[KeyColumns],
        facts: Collection[Fact],
        buffers: Buffers,
        *,
        whole: bool,
    ) -> WeightBlock:
        found = self.weights.block(rows, columns, (), buffers, whole=whole).weights
        parts = found.split([len(some.keys) for some in columns], dim=3)
        for some, part in zip(columns, parts, strict=True):
            part.mul_(read(self.norms, rows.batch, rows.heads, some.keys)[..., None, :])
        return WeightBlock(found)
