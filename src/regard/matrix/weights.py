"""The source of materialised weights."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.matrix.source import (
    OVERWRITTEN,
    Block,
    Buffers,
    Columns,
    Facts,
    Index,
    LazyTensor,
    PairMask,
    QueryRows,
    as_tensor,
    read,
)
from regard.patterns import Pattern
from regard.versions import Overwritten, Versions


@dataclass(frozen=True, eq=False)
class Weights:
    """Materialised weights; see `Source`.

    Attributes:
        weights: [batch, heads, queries, keys].
        pattern: the mask.
        query_positions: the position of each query, [queries], on the CPU.
        overwritten: the message if the weights were modified in place.
        mask_known: whether the pattern is the mask; if not, it allows every pair.
        value: the values, [batch, key_heads, keys, value_dim]; None if unknown, as its matrix does
            not need them.
    """

    weights: Float[Tensor, "batch heads queries keys"] | LazyTensor
    pattern: Pattern
    query_positions: Int[Tensor, "queries"]
    overwritten: str = OVERWRITTEN
    mask_known: bool = True
    value: Float[Tensor, "batch key_heads keys value_dim"] | None = None
    _versions: Versions = field(init=False, repr=False)
    _value_version: Versions = field(init=False, repr=False)

    biased = False
    signed = False
    group = 1

    def __post_init__(self) -> None:
        tensors = [self.weights] if isinstance(self.weights, Tensor) else []
        object.__setattr__(self, "_versions", Versions(("weights", tensor) for tensor in tensors))
        value = [] if self.value is None else [("value", self.value)]
        object.__setattr__(self, "_value_version", Versions(value))

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
        return self.query_positions[as_tensor(queries)]

    def allowed(self, rows: QueryRows, keys: Index) -> PairMask:
        return rows.test(self.pattern, keys)

    def has_lse(self, batch: range, heads: range, queries: Index) -> bool:
        return True

    def check(self) -> None:
        if self._versions.modified():
            raise Overwritten(self.overwritten.format(name="weights"))

    def check_value(self) -> None:
        """Raise Overwritten if the values were modified in place."""
        if self._value_version.modified():
            raise Overwritten(self.overwritten.format(name="value"))

    def block(
        self, rows: QueryRows, columns: Columns, facts: Facts, buffers: Buffers, *, whole: bool
    ) -> Block:
        self.check()
        widths = [len(chunk.keys) for chunk in columns]
        weights = buffers("weights", *rows.sizes, sum(widths))
        for chunk, part in zip(columns, weights.split(widths, dim=3), strict=True):
            part.copy_(read(self.weights, rows.batch, rows.heads, rows.queries, chunk.keys))
            for span in chunk.partial:
                part[..., span].masked_fill_(~rows.test(self.pattern, chunk.keys[span]), 0.0)
        return weights, {}
