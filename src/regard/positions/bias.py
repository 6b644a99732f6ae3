"""The protocol of score biases."""

from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor


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

    def adjust(
        self,
        scores: Float[Tensor, "*#pairs"],
        batch: Int[Tensor, "*#pairs"],
        head: Int[Tensor, "*#pairs"],
        query: Int[Tensor, "*#pairs"],
        key: Int[Tensor, "*#pairs"],
    ) -> Float[Tensor, "..."]:
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
