"""Which positions of a sequence each rank has."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor, distributed

from regard.distributed.ranks import Ranks
from regard.errors import check_choice
from regard.patterns.pairs import PositionSet, position_set

Order = Literal["zigzag", "contiguous"]

PositionRuns = tuple[tuple[int, int], ...]
"""Positions as runs of neighbours: first position of each, and the one behind its last."""


@dataclass(frozen=True)
class ShardPositions:
    """The positions of all ranks, in the order in which each has them.

    Attributes:
        runs: the positions of each rank.
    """

    runs: tuple[PositionRuns, ...]

    @property
    def length(self) -> int:
        """Number of positions of all ranks."""
        return sum(stop - start for runs in self.runs for start, stop in runs)

    @property
    def problem(self) -> str:
        """Why these are not the positions of one sequence, "" if they are."""
        end = 0
        for start, stop in sorted(run for runs in self.runs for run in runs):
            if start != end:
                owners = "no rank has" if start > end else "two ranks have"
                return f"{owners} position {min(start, end)}"
            end = stop
        return ""

    def positions(self, rank: int) -> Int[Tensor, "local"]:
        """Return the positions of a rank."""
        parts = [torch.arange(start, stop, device="cpu") for start, stop in self.runs[rank]]
        return torch.cat(parts) if parts else torch.arange(0, device="cpu")

    def position_set(self, rank: int) -> PositionSet:
        """Return the positions of a rank as a set."""
        return position_set(self.runs[rank])

    def joined(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        """Return the tensor of which each rank has a part, in the order of positions.

        Args:
            parts: the part of each rank.
            axis: the axis of the sequence.
        """
        order = torch.cat([self.positions(rank) for rank in range(len(parts))]).argsort()
        return torch.cat(list(parts), dim=axis).index_select(axis, order.to(parts[0].device))


def runs_of(positions: Int[Tensor, "local"]) -> PositionRuns:
    """Return positions as runs of neighbours."""
    if not len(positions):
        return ()
    ends = (positions.diff() != 1).nonzero().flatten()
    first = torch.cat([positions[:1], positions[ends + 1]])
    last = torch.cat([positions[ends], positions[-1:]])
    return tuple(zip(first.tolist(), (last + 1).tolist(), strict=True))


def shard_positions(length: int, num_ranks: int, order: Order = "zigzag") -> ShardPositions:
    """Return the shards of a sequence, as `shard` cuts it.

    >>> shard_positions(12, 2).runs
    (((0, 3), (9, 12)), ((3, 6), (6, 9)))
    """
    check_choice("order", order, ("zigzag", "contiguous"))
    if order == "contiguous":
        chunks = _chunks(length, num_ranks)
        return ShardPositions(tuple((chunk,) for chunk in chunks))
    chunks = _chunks(length, 2 * num_ranks)
    return ShardPositions(tuple((chunks[rank], chunks[-1 - rank]) for rank in range(num_ranks)))


def _chunks(length: int, count: int) -> list[tuple[int, int]]:
    if length % count:
        raise ValueError(f"the length must be a multiple of {count}, got {length}: pad the end")
    size = length // count
    return [(first, first + size) for first in range(0, length, size)] if size else [(0, 0)] * count


def positions(
    length: int, group: "distributed.ProcessGroup | None" = None, *, order: Order = "zigzag"
) -> Int[Tensor, "local"]:
    """Return the positions of a sequence that this rank has, for `attend(..., positions=)`.

    Args:
        length: number of tokens of the sequence.
        group: the ranks that share it; all by default.
        order: "zigzag" cuts it into 2R chunks and gives rank r the chunks r and 2R − 1 − r, so that
            all have as much to do under a causal mask; "contiguous" gives it the r-th of R parts.

    Raises:
        ValueError: the length is no multiple of the number of chunks.
    """
    ranks = Ranks.of(group)
    return shard_positions(length, ranks.size, order).positions(ranks.rank)


def shard(
    x: Tensor,
    group: "distributed.ProcessGroup | None" = None,
    *,
    axis: int = 2,
    order: Order = "zigzag",
) -> Tensor:
    """Return the part of a tensor that this rank has.

    Args:
        x: a tensor that all ranks have, such as a query [batch, heads, sequence, dim].
        group: the ranks that share it; all by default.
        axis: the axis of the sequence.
        order: as for `positions`.

    Raises:
        ValueError: the length is no multiple of the number of chunks.
    """
    return x.index_select(axis, positions(x.shape[axis], group, order=order).to(x.device))


def unshard(
    x: Tensor,
    group: "distributed.ProcessGroup | None" = None,
    *,
    axis: int = 2,
    order: Order = "zigzag",
) -> Tensor:
    """Return the tensor of which each rank has a part, on all ranks, without gradients.

    Args:
        x: the part of this rank.
        group: the ranks that share it; all by default.
        axis: the axis of the sequence.
        order: as for `positions`.
    """
    size = Ranks.of(group).size
    parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(size)]
    distributed.all_gather(parts, x.detach().contiguous(), group=group)
    return shard_positions(x.shape[axis] * size, size, order).joined(parts, axis)
