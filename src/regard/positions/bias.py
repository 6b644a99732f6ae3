"""The one thing that every change of attention scores has in common."""

from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor


@runtime_checkable
class Bias(Protocol):
    """Say what order does to a score.

    A bias is elementwise: the adjusted score of a pair depends on its score, its batch entry, its
    head and the positions of its query and key, and on no other pair. It can therefore be evaluated
    on any rectangle of the attention matrix, or on a single pair.

    Nothing has to be inherited. An object with these members is a bias:

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
        """Say whether the bias only adds something that does not depend on the score.

        If so, a kernel can take it as an additive mask: `adjust` of zeros.
        """
        ...

    @property
    def relative(self) -> bool:
        """Say whether positions count only by the distance between them.

        If so, rectangles at one distance from the diagonal can share what was computed for one.
        """
        ...

    @property
    def batch_size(self) -> int | None:
        """Give the number of sequences that the bias is made for; None: the same for all."""
        ...

    @property
    def num_heads(self) -> int | None:
        """Give the number of query heads that the bias is made for; None: the same for all."""
        ...

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """List the tensors that `adjust` reads, for checks of devices and for gradients."""
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

        FlexAttention traces this method with tensors of no dimensions, so it must not branch on
        the values of its arguments.

        Args:
            scores: scaled products of queries and keys. All five arguments broadcast.
            batch: index of the batch entry.
            head: index of the query head.
            query: position of the query, which is not its index when keys are cached.
            key: position of the key.

        Returns:
            The adjusted scores in the dtype of `scores`, in the shape that the arguments broadcast
            to.
        """
        ...
