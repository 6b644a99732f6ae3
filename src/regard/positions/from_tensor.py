"""A bias from a dense tensor."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.positions.bias import Adjusted, Floats, Ints


@dataclass(frozen=True, eq=False)
class FromTensor:
    """Add a dense tensor to the scores; see `from_tensor`."""

    values: Float[Tensor, "batch heads queries keys"]
    first_query: int = 0
    additive = True
    relative = False

    def __post_init__(self) -> None:
        if self.values.ndim != 4:
            raise ValueError(
                "values must have 4 axes, [batch or 1, heads or 1, queries, keys], "
                f"got shape {list(self.values.shape)}"
            )
        if not self.values.is_floating_point():
            raise ValueError(
                f"values must be a floating-point tensor, got {self.values.dtype}; "
                "pass a boolean mask as regard.patterns.from_mask(mask)"
            )

    @property
    def batch_size(self) -> int | None:
        size = self.values.shape[0]
        return None if size == 1 else size

    @property
    def num_heads(self) -> int | None:
        heads = self.values.shape[1]
        return None if heads == 1 else heads

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.values,)

    def check(self, queries: range, num_keys: int) -> None:
        """Raise ValueError unless there is a value for every pair.

        Args:
            queries: the lowest to the highest query position.
            num_keys: the number of keys, at positions 0 ... num_keys - 1.
        """
        num_rows, num_columns = self.values.shape[2:]
        stop = self.first_query + num_rows
        if queries and (queries[0] < self.first_query or queries[-1] >= stop):
            raise ValueError(
                f"from_tensor: values has rows for positions {self.first_query} to {stop - 1}, "
                f"got queries at {queries[0]} to {queries[-1]}"
            )
        if num_columns < num_keys:
            raise ValueError(
                f"from_tensor: values must have one column per key ({num_keys}), got {num_columns}"
            )

    def adjust(self, scores: Floats, batch: Ints, head: Ints, query: Ints, key: Ints) -> Adjusted:
        """Return `scores + values[batch, head, query - first_query, key]`; see `Bias.adjust`."""
        if self.values.shape[0] == 1:
            batch = torch.zeros_like(batch)
        if self.values.shape[1] == 1:
            head = torch.zeros_like(head)
        # Accumulate the gradient of values in the wider dtype.
        exact = torch.promote_types(scores.dtype, self.values.dtype)
        values = self.values.to(exact) if self.values.requires_grad else self.values
        # Explicit casts, because promotion ignores the dtype of 0-dim tensors.
        added = values[batch, head, query - self.first_query, key].to(exact)
        return (scores.to(exact) + added).to(scores.dtype)


def from_tensor(
    values: Float[Tensor, "batch heads queries keys"], *, first_query: int = 0
) -> FromTensor:
    """Add `values[batch, head, query - first_query, key]` to the scores.

    `values` is indexed by *position*: with 100 cached keys, a new token has position 100, so
    `values` needs 101 rows, or one row with `first_query=100`. Gradients flow to `values`. To mask
    pairs, use a pattern, which needs no n x n tensor.

    Args:
        values: [batch or 1, heads or 1, queries, keys].
        first_query: position of the first row.

    Raises:
        ValueError: if `values` is not a floating-point tensor with 4 axes.

    >>> bias = from_tensor(torch.tensor([[[[0.0, 1.0], [2.0, 3.0]]]]))
    >>> zero = torch.tensor(0)
    >>> bias.adjust(torch.zeros(2), zero, zero, query=torch.tensor(1), key=torch.arange(2))
    tensor([2., 3.])
    """
    return FromTensor(values, first_query)
