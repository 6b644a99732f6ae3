"""A matrix that somebody has written down."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.matrix.index import Index, as_tensor, take
from regard.matrix.source import Block, Buffers, Columns, Fact, Rows
from regard.patterns import Pattern
from regard.versions import Overwritten, Versions


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights that are known already; see `Source`.

    Attributes:
        weights: [batch, heads, queries, keys].
        pattern: who may look at whom.
        where: where each query stands, [queries], on the CPU.
    """

    weights: Float[Tensor, "batch heads queries keys"]
    pattern: Pattern
    where: Int[Tensor, "queries"]
    _versions: Versions = field(init=False, repr=False)

    biased = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "_versions", Versions([("weights", self.weights)]))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        batch, heads, queries, keys = self.weights.shape
        return batch, heads, queries, keys

    @property
    def dtype(self) -> torch.dtype:
        return torch.promote_types(self.weights.dtype, torch.float32)

    @property
    def device(self) -> torch.device:
        return self.weights.device

    def positions(self, queries: Index) -> Int[Tensor, "rows"]:
        return self.where[as_tensor(queries)]

    def head_runs(self, heads: range, most: int) -> Iterator[range]:
        for first in range(0, len(heads), most):
            yield heads[first : first + most]

    def allowed(
        self, rows: Rows, keys: Index
    ) -> Bool[Tensor, "some_batch heads_or_1 rows some_columns"]:
        return rows.test(self.pattern, keys)

    def knows(self, batch: range, heads: range, queries: Index) -> bool:
        return True

    def rows(self, batch: range, heads: range, queries: Index) -> Rows:
        return Rows(batch, heads, queries, self.positions(queries).to(self.device))

    def learn(self, rows: Rows, columns: Sequence[Columns], buffers: Buffers) -> None:
        """Do nothing: what is written down is known."""

    def block(
        self,
        rows: Rows,
        columns: Sequence[Columns],
        facts: Collection[Fact],
        buffers: Buffers,
        *,
        whole: bool,
    ) -> Block:
        if self._versions.modified():
            raise Overwritten(
                "weights were modified in place after the attention matrix was made from them: "
                "make the matrix from weights.clone()"
            )
        found = take(take(take(self.weights, 0, rows.batch), 1, rows.heads), 2, rows.queries)
        widths = [len(some.keys) for some in columns]
        weights = buffers("weights", *found.shape[:3], sum(widths))
        for some, part in zip(columns, weights.split(widths, dim=3), strict=True):
            part.copy_(take(found, 3, some.keys))
            for span in some.doubtful:
                part[..., span].masked_fill_(~rows.test(self.pattern, some.keys[span]), 0.0)
        return Block(weights)
