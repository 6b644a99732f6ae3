"""A bias that is written down in full."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class FromTensor:
    """Add to each score a number from a dense tensor.

    Args:
        values: what is added, looked up by position. Shape [batch or 1, heads or 1, queries, keys].
        first_query: the position that the first row stands for.

    Raises:
        ValueError: if `values` is not a floating tensor of four dimensions.
    """

    values: Float[Tensor, "batch heads queries keys"]
    first_query: int = 0
    additive = True
    relative = False

    def __post_init__(self) -> None:
        if self.values.ndim != 4:
            raise ValueError(
                "values must have the four dimensions [batch or 1, heads or 1, queries, keys], "
                f"got shape {list(self.values.shape)}"
            )
        if not self.values.is_floating_point():
            raise ValueError(
                f"values must be floating, got {self.values.dtype}; "
                "a mask of allowed pairs is a pattern, not a bias"
            )

    @property
    def batch_size(self) -> int | None:
        """The number of sequences in `values`; None if there is one, which serves all."""
        size = self.values.shape[0]
        return None if size == 1 else size

    @property
    def num_heads(self) -> int | None:
        """The number of heads in `values`; None if there is one, which serves all."""
        heads = self.values.shape[1]
        return None if heads == 1 else heads

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The values."""
        return (self.values,)

    def check(self, queries: range, num_keys: int) -> None:
        """Raise ValueError unless there is a number for every pair.

        Args:
            queries: the lowest to the highest position of a query.
            num_keys: the number of keys, which stand at 0 ... num_keys - 1.
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
                f"from_tensor: values must have a column for each of {num_keys} keys, "
                f"got {num_columns}"
            )

    def adjust(
        self,
        scores: Float[Tensor, "*#pairs"],
        batch: Int[Tensor, "*#pairs"],
        head: Int[Tensor, "*#pairs"],
        query: Int[Tensor, "*#pairs"],
        key: Int[Tensor, "*#pairs"],
    ) -> Float[Tensor, "..."]:
        """Return `scores + values[batch, head, query - first_query, key]`; see `Bias.adjust`."""
        if self.values.shape[0] == 1:
            batch = torch.zeros_like(batch)
        if self.values.shape[1] == 1:
            head = torch.zeros_like(head)
        # A gradient that many pairs add to is summed up in the better type.
        exact = torch.promote_types(scores.dtype, self.values.dtype)
        values = self.values.to(exact) if self.values.requires_grad else self.values
        # Spelled out, because promotion would let the dtype of a tensor of no dimensions go.
        added = values[batch, head, query - self.first_query, key].to(exact)
        return (scores.to(exact) + added).to(scores.dtype)


def from_tensor(
    values: Float[Tensor, "batch heads queries keys"], *, first_query: int = 0
) -> FromTensor:
    """Bias scores by a dense tensor of numbers, looked up by position.

    Rows and columns of `values` are *positions*, not indices: with 100 keys cached and one new
    token, the query stands at position 100 and reads row 100: either `values` has 101 rows, or it
    has one and `first_query` is 100. Gradients flow to `values`. To forbid pairs, use a pattern,
    which needs no n x n tensor.

    Args:
        values: what is added. Shape [batch or 1, heads or 1, queries, keys].
        first_query: the position that the first row of `values` stands for.

    Returns:
        A `Bias` that adds `values[batch, head, query - first_query, key]`.

    Raises:
        ValueError: if `values` is not a floating tensor of four dimensions.

    >>> bias = from_tensor(torch.tensor([[[[0.0, 1.0], [2.0, 3.0]]]]))
    >>> zero = torch.tensor(0)
    >>> bias.adjust(torch.zeros(2), zero, zero, query=torch.tensor(1), key=torch.arange(2))
    tensor([2., 3.])
    """
    return FromTensor(values, first_query)
