"""T5's learned biases for buckets of distances."""

import math

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.errors import check_positive
from regard.positions.bias import Adjusted, Floats, Ints


class Relative(nn.Module):
    """A learned bias for each head and bucket of distances (Raffel et al., 2020).

        score(i, j)  ->  score(i, j) + table[bucket_of(j - i), head]

    Small distances have a bucket each, larger ones share buckets on a logarithmic scale; see
    `bucket_of`. The table is initialised to zero. It has the layout of `relative_attention_bias` in
    T5's checkpoints.

    The module is a `Bias`, passed to attention; it has no `forward`.

    Args:
        num_heads: number of query heads.
        num_buckets: number of rows of the table, even if `bidirectional`.
        max_distance: distance from which on all share one bucket.
        bidirectional: whether keys after the query have half of the buckets. If not, they share the
            bucket of distance 0.

    Raises:
        ValueError: if `num_heads` is not positive, or the buckets don't fit.

    >>> bias = Relative(num_heads=2, num_buckets=8, max_distance=16)
    >>> bias.table.shape
    torch.Size([8, 2])
    """

    table: nn.Parameter
    additive = True
    relative = True
    batch_size = None

    def __init__(
        self,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        check_positive(num_heads=num_heads)
        _layout(num_buckets, max_distance, bidirectional)
        self.num_heads = num_heads
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.table = nn.Parameter(torch.zeros(num_buckets, num_heads))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.table,)

    def adjust(self, scores: Floats, batch: Ints, head: Ints, query: Ints, key: Ints) -> Adjusted:
        """Return `scores + table[bucket_of(key - query), head]`; see `Bias.adjust`."""
        bucket = bucket_of(
            key - query,
            num_buckets=self.num_buckets,
            max_distance=self.max_distance,
            bidirectional=self.bidirectional,
        )
        # Explicit casts, because promotion ignores the dtype of 0-dim tensors.
        exact = torch.promote_types(scores.dtype, self.table.dtype)
        return (scores.to(exact) + self.table[bucket, head].to(exact)).to(scores.dtype)

    def extra_repr(self) -> str:
        return (
            f"num_heads={self.num_heads}, num_buckets={self.num_buckets}, "
            f"max_distance={self.max_distance}, bidirectional={self.bidirectional}"
        )


def bucket_of(
    distance: Int[Tensor, "*pairs"],
    *,
    num_buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
) -> Int[Tensor, "*pairs"]:
    """Return the bucket of each distance, 0 to `num_buckets - 1`.

    Of the n buckets of one direction, the first n // 2 hold the distances 0, 1, ..., n // 2 - 1.
    The others divide the range up to `max_distance` evenly on a logarithmic scale; the last one
    also holds all larger distances.

    Args:
        distance: key position minus query position, of any shape.
        num_buckets: number of buckets in all, even if `bidirectional`.
        max_distance: distance from which on all share one bucket.
        bidirectional: whether keys after the query take the upper half of the buckets. If not, they
            fall into bucket 0.

    Raises:
        ValueError: if the buckets don't fit.

    >>> bucket_of(torch.tensor([-100, -9, -2, -1, 0, 1, 2, 9]), num_buckets=8, max_distance=16)
    tensor([3, 3, 2, 1, 0, 5, 6, 7])
    """
    side, exact = _layout(num_buckets, max_distance, bidirectional)
    steps = distance.abs() if bidirectional else (-distance).clamp(min=0)
    # The clamp avoids log(0) in the branch that `where` discards. float32, because checkpoints were
    # trained with its buckets.
    octaves = torch.log(steps.clamp(min=exact).to(torch.float32) / exact)
    coarse = exact + (octaves / math.log(max_distance / exact) * (side - exact)).to(distance.dtype)
    bucket = torch.where(steps < exact, steps, coarse.clamp(max=side - 1))
    return bucket + side * (distance > 0).to(distance.dtype) if bidirectional else bucket


def _layout(num_buckets: int, max_distance: int, bidirectional: bool) -> tuple[int, int]:
    """Return the number of buckets per direction, and of those with one distance each."""
    if bidirectional and num_buckets % 2:
        raise ValueError(f"num_buckets must be even when bidirectional, got {num_buckets}")
    least = 4 if bidirectional else 2
    if num_buckets < least:
        raise ValueError(
            f"num_buckets must be at least {least} when bidirectional is {bidirectional}, "
            f"got {num_buckets}"
        )
    side = num_buckets // 2 if bidirectional else num_buckets
    exact = side // 2
    if max_distance <= exact:
        raise ValueError(
            f"max_distance must be greater than {exact}, the number of distances with a bucket "
            f"each, got {max_distance}"
        )
    return side, exact
