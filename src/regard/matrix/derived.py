"""Numbers of pairs that are computed from their weights."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.matrix.index import Index
from regard.matrix.source import QueryRows, Source
from regard.patterns import Pattern


@dataclass(eq=False)
class Derived:
    """What all sources have in common that multiply weights with something.

    Attributes:
        weights: the attention matrix.
    """

    weights: Source

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.weights.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.weights.dtype

    @property
    def device(self) -> torch.device:
        return self.weights.device

    @property
    def pattern(self) -> Pattern:
        return self.weights.pattern

    @property
    def mask_known(self) -> bool:
        return self.weights.mask_known

    @property
    def biased(self) -> bool:
        return self.weights.biased

    def positions(self, queries: Index) -> Int[Tensor, "rows"]:
        return self.weights.positions(queries)

    def head_runs(self, heads: range, most: int) -> Iterator[range]:
        return self.weights.head_runs(heads, most)

    def allowed(
        self, rows: QueryRows, keys: Index
    ) -> Bool[Tensor, "some_batch heads_or_1 rows some_columns"]:
        return self.weights.allowed(rows, keys)
