"""The protocol of score biases, their composition, and the soft limit of scores."""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

Floats = Float[Tensor, "*#pairs"]
"""Scores of pairs; the arguments of `adjust` broadcast."""

Ints = Int[Tensor, "*#pairs"]
"""Indices or positions of pairs."""

Adjusted = Float[Tensor, "..."]
"""The adjusted scores, in the shape to which the arguments broadcast."""


@runtime_checkable
class Bias(Protocol):
    """A function of attention scores and positions.

    A bias is elementwise: the adjusted score of a pair depends on its score, batch index, head,
    query position and key position only. So it can be evaluated on any rectangle of the matrix.

    It is a protocol; any object with these members is a bias:

    >>> import torch
    >>> class Recency:
    ...     additive = True
    ...     relative = True
    ...     batch_size = None
    ...     num_heads = None
    ...     tensors = ()
    ...
    ...     def adjust(self, scores, batch, head, query, key):
    ...         return scores - 0.5 * (query - key).abs().to(scores.dtype)
    >>> isinstance(Recency(), Bias)
    True
    >>> batch = head = torch.tensor(0)
    >>> position = torch.arange(3)
    >>> Recency().adjust(torch.zeros(3, 3), batch, head, position[:, None], position)
    tensor([[ 0.0000, -0.5000, -1.0000],
            [-0.5000,  0.0000, -0.5000],
            [-1.0000, -0.5000,  0.0000]])
    """

    @property
    def additive(self) -> bool:
        """Whether it adds a value that does not depend on the score.

        If so, `adjust` of zeros is an additive mask for a kernel.
        """
        ...

    @property
    def relative(self) -> bool:
        """Whether it depends on positions only by their distance.

        If so, rectangles at the same distance from the diagonal share it.
        """
        ...

    @property
    def batch_size(self) -> int | None:
        """The size of the batch axis; None if all sequences have the same bias."""
        ...

    @property
    def num_heads(self) -> int | None:
        """The number of query heads; None if all heads have the same bias."""
        ...

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that `adjust` reads, for device checks and gradients."""
        ...

    def adjust(self, scores: Floats, batch: Ints, head: Ints, query: Ints, key: Ints) -> Adjusted:
        """Return the adjusted scores.

        FlexAttention traces this method with 0-dim tensors, so it must not branch on values.

        Args:
            scores: scaled products of queries and keys. All five arguments broadcast.
            batch: batch index.
            head: index of the query head.
            query: query position (not its index, with cached keys).
            key: key position.

        Returns:
            The adjusted scores, broadcast, in the dtype of `scores`.
        """
        ...


@dataclass(frozen=True, eq=False)
class ComposedBias:
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

    def adjust(self, scores: Floats, batch: Ints, head: Ints, query: Ints, key: Ints) -> Adjusted:
        """Adjust twice; see `Bias.adjust`."""
        adjusted = self.first.adjust(scores, batch, head, query, key)
        return self.second.adjust(adjusted, batch, head, query, key)


def compose(first: Bias | None, second: Bias | None) -> Bias | None:
    """Return the bias that applies `first`, then `second`; None is the identity."""
    if first is None or second is None:
        return second if first is None else first
    return ComposedBias(first, second)


@dataclass(frozen=True)
class Softcap:
    """Limit scores to -cap ... cap; see `softcap`."""

    cap: float
    additive = False
    relative = True
    batch_size = None
    num_heads = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.cap) and self.cap > 0):
            raise ValueError(f"cap must be positive and finite, got {self.cap}")

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return ()

    def adjust(self, scores: Floats, batch: Ints, head: Ints, query: Ints, key: Ints) -> Adjusted:
        """Return `cap * tanh(scores / cap)`; see `Bias.adjust`."""
        # Round once, at the end.
        exact = torch.promote_types(scores.dtype, torch.float32)
        return (self.cap * torch.tanh(scores.to(exact) / self.cap)).to(scores.dtype)


def softcap(cap: float) -> Softcap:
    """Limit scores smoothly; small ones hardly change.

        score  ->  cap * tanh(score / cap)

    Args:
        cap: the limit, positive and finite; Gemma 2 has 50.

    Raises:
        ValueError: if `cap` is not positive and finite.

    >>> zero = torch.tensor(0)
    >>> softcap(50.0).adjust(torch.tensor([1.0, 50.0, 1000.0]), zero, zero, zero, zero)
    tensor([ 0.9999, 38.0797, 50.0000])
    """
    return Softcap(cap)
