"""The processes that write one recording, each its own heads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import distributed

from regard.attention.ring.transfers import from_all_ranks

Made = TypeVar("Made")


@dataclass(frozen=True)
class Writers:
    """The ranks of a group, seen by one of them; by default one process alone.

    All ranks call the same methods in the same order.

    Attributes:
        group: the group; None is that of all ranks.
        rank: number of this rank in it.
        size: number of ranks.
    """

    group: "distributed.ProcessGroup | None" = None
    rank: int = 0
    size: int = 1

    @classmethod
    def of(cls, group: "distributed.ProcessGroup | None") -> "Writers":
        """Return the writers of a group.

        Raises:
            ValueError: this process is not in it.
        """
        rank = distributed.get_rank(group)
        if rank < 0:
            raise ValueError("group must be one that this rank is in")
        return cls(group, rank, distributed.get_world_size(group))

    def gather(self, mine: Made) -> list[Made]:
        """Return what each rank has."""
        return [mine] if self.size == 1 else from_all_ranks(mine, self.group)

    def run(self, work: Callable[[], Made]) -> Made:
        """Do some work on each rank, and return the result of this one.

        Raises:
            RuntimeError: another rank has failed; an error of this rank is raised as it is.
        """
        result: Any = None
        failed = None
        try:
            result = work()
        except Exception as error:
            if self.size == 1:
                raise
            # The others would wait for this rank.
            failed = error
        problems = self.gather("" if failed is None else f"{type(failed).__name__}: {failed}")
        if failed is not None:
            raise failed
        for rank, problem in enumerate(problems):
            if problem:
                raise RuntimeError(f"rank {rank} has failed: {problem}")
        return result

    def first(self, work: Callable[[], Made]) -> Made:
        """Do some work on rank 0, and return its result on all; errors as for `run`."""
        return self.gather(self.run(work) if self.rank == 0 else self.run(_nothing))[0]


def _nothing() -> Any:
    return None
