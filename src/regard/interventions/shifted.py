"""A bias that shifts the scores of pairs for a part of the heads: patterns are the same for all."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.patterns import Pattern
from regard.positions.bias import Adjusted, Floats, Ints


@dataclass(frozen=True, eq=False)
class Shifted:
    """A number that is added to the scores of the pairs of a pattern, in some heads; see `Bias`.

    Attributes:
        pattern: the pairs.
        heads: the heads.
        num_heads: the number of all heads.
        shift: the number, −inf to mask the pairs; or one for each row, by the query's position.
        first_query: the position of the first row of `shift`.
    """

    pattern: Pattern
    heads: tuple[int, ...]
    num_heads: int
    shift: float | Float[Tensor, "batch heads queries"] = -torch.inf
    first_query: int = 0

    additive = True

    @property
    def relative(self) -> bool:
        """Whether the pattern is, and all rows are shifted by the same number."""
        return self.pattern.relative and not isinstance(self.shift, Tensor)

    @property
    def batch_size(self) -> int | None:
        """That of the pattern, or of the numbers."""
        return len(self.shift) if isinstance(self.shift, Tensor) else self.pattern.batch_size

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The numbers of the rows."""
        return (self.shift,) if isinstance(self.shift, Tensor) else ()

    def adjust(self, scores: Floats, batch: Ints, head: Ints, query: Ints, key: Ints) -> Adjusted:
        """Return the adjusted scores; see `Bias.adjust`."""
        chosen = torch.zeros(self.num_heads, dtype=torch.bool, device=head.device)
        chosen[list(self.heads)] = True
        shift = self.shift
        if isinstance(shift, Tensor):
            shift = shift[batch, head, query - self.first_query].to(scores.dtype)
        pairs = chosen[head] & self.pattern.test(batch, query, key)
        return torch.where(pairs, scores + shift, scores)
