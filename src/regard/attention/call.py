"""One call of attention, with everything that it was given spelled out."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.patterns import Pattern
from regard.patterns.causal import Causal
from regard.patterns.memory import remembered
from regard.patterns.pattern import Everyone
from regard.positions import Bias


@dataclass(frozen=True, eq=False)
class Call:
    """A call of attention.

    Attributes:
        query: [batch, heads, queries, key_dim].
        key: [batch, key_heads, keys, key_dim]; heads is a multiple of key_heads.
        value: [batch, key_heads, keys, value_dim].
        pattern: who may look at whom.
        bias: what order does to a score, or None.
        scale: the factor on the scores.
        dropout: the share of the weights that is dropped.
        first_position: where the first query stands among the keys if the others follow one after
            the other, else None.
        listed_positions: where each query stands, [queries], on the CPU, if they don't.
    """

    query: Float[Tensor, "batch heads queries key_dim"]
    key: Float[Tensor, "batch key_heads keys key_dim"]
    value: Float[Tensor, "batch key_heads keys value_dim"]
    pattern: Pattern
    bias: Bias | None
    scale: float
    dropout: float
    first_position: int | None
    listed_positions: Int[Tensor, "queries"] | None

    @property
    def batch(self) -> int:
        """The number of sequences."""
        return self.query.shape[0]

    @property
    def num_heads(self) -> int:
        """The number of query heads."""
        return self.query.shape[1]

    @property
    def num_queries(self) -> int:
        """The number of queries in a sequence."""
        return self.query.shape[2]

    @property
    def num_keys(self) -> int:
        """The number of keys in a sequence."""
        return self.key.shape[2]

    @property
    def group(self) -> int:
        """How many query heads share one key head."""
        return self.num_heads // self.key.shape[1]

    @property
    def lse_dtype(self) -> torch.dtype:
        """The type in which scores are summed up, and so the type of the log-sum-exp."""
        return torch.float64 if self.query.dtype == torch.float64 else torch.float32

    @property
    def query_positions(self) -> Int[Tensor, "queries"]:
        """Where the queries stand among the keys, on the CPU."""
        if self.listed_positions is not None:
            return self.listed_positions
        assert self.first_position is not None
        return torch.arange(
            self.first_position, self.first_position + self.num_queries, device="cpu"
        )

    @property
    def simple_pattern(self) -> Pattern:
        """The pattern without the members that make no difference to this call."""
        if isinstance(self.pattern, Everyone) or not self.num_queries or not self.num_keys:
            return Everyone()
        first, last = self.query_span
        if isinstance(self.pattern, Causal):
            # The usual case, told apart without tensors so that torch.compile can follow.
            return Everyone() if first >= self.num_keys - 1 else self.pattern
        queries = range(first, last + 1)
        return remembered(
            self.pattern,
            ("simple", queries, self.num_keys),
            lambda: self.pattern.simplified(queries, self.num_keys),
        )

    @property
    def query_span(self) -> tuple[int, int]:
        """The lowest and the highest position of a query, of which there is one at least."""
        if self.listed_positions is not None:
            return int(self.listed_positions.min()), int(self.listed_positions.max())
        assert self.first_position is not None
        return self.first_position, self.first_position + self.num_queries - 1

    @property
    def is_dense(self) -> bool:
        """Whether every query may look at every key."""
        return isinstance(self.simple_pattern, Everyone)

    @property
    def is_square_causal(self) -> bool:
        """Whether queries look back only, and stand where the keys stand."""
        square = self.num_queries == self.num_keys and self.first_position == 0
        return square and isinstance(self.simple_pattern, Causal)

    @property
    def trains_bias(self) -> bool:
        """Whether gradients must flow into the bias."""
        if self.bias is None or not torch.is_grad_enabled():
            return False
        return any(tensor.requires_grad for tensor in self.bias.tensors)


def default_scale(key_dim: int) -> float:
    """Return the factor on the scores where none is given, 1/√key_dim."""
    return 1.0 / math.sqrt(max(1, key_dim))
