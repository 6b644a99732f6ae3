"""The composition of two biases."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from regard.positions.bias import Bias


@dataclass(frozen=True, eq=False)
class Joined:
    """Apply one bias, then another."""

    first: Bias
    second: Bias

    @property
    def additive(self) -> bool:
        return self.first.additive and self.second.additive

    @property
    def relative(self) -> bool:
        return self.first.relative and self.second.relative

    @property
    def batch_size(self) -> int | None:
        sizes = (self.first.batch_size, self.second.batch_size)
        return next((size for size in sizes if size is not None), None)

    @property
    def num_heads(self) -> int | None:
        counts = (self.first.num_heads, self.second.num_heads)
        return next((count for count in counts if count is not None), None)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (*self.first.tensors, *self.second.tensors)

    def adjust(
        self,
        scores: Float[Tensor, "*#pairs"],
        batch: Int[Tensor, "*#pairs"],
        head: Int[Tensor, "*#pairs"],
        query: Int[Tensor, "*#pairs"],
        key: Int[Tensor, "*#pairs"],
    ) -> Float[Tensor, "..."]:
        """Adjust twice; see `Bias.adjust`."""
        adjusted = self.first.adjust(scores, batch, head, query, key)
        return self.second.adjust(adjusted, batch, head, query, key)


def joined(first: Bias | None, second: Bias | None) -> Bias | None:
    """Return the bias that applies `first`, then `second`; None is the identity."""
    if first is None or second is None:
        return second if first is None else first
    return Joined(first, second)
