"""A bias that masks pairs for a part of the heads: patterns are the same for all."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.patterns import Pattern
from regard.positions.bias import Adjusted, Floats, Ints


@dataclass(frozen=True, eq=False)
class Forbidden:
    """−inf for the pairs that a pattern allows, in some heads; see `Bias`.

    Attributes:
        pattern: the pairs.
        heads: the heads.
        num_heads: the number of all heads.
    """

    pattern: Pattern
    heads: tuple[int, ...]
    num_heads: int

    additive = True
    tensors: tuple[Tensor, ...] = ()

    @property
    def relative(self) -> bool:
        """Whether the pattern is."""
        return self.pattern.relative

    @property
    def batch_size(self) -> int | None:
        """That of the pattern."""
        return self.pattern.batch_size

    def adjust(self, scores: Floats, batch: Ints, head: Ints, query: Ints, key: Ints) -> Adjusted:
        """Return the adjusted scores; see `Bias.adjust`."""
        chosen = torch.zeros(self.num_heads, dtype=torch.bool, device=head.device)
        chosen[list(self.heads)] = True
        return torch.where(chosen[head] & self.pattern.test(batch, query, key), -torch.inf, scores)
