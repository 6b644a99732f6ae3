"""Processes that do something together, such as the ranks that share a sequence.

All ranks of a group call the same methods in the same order. If one of them raised at once, the
others would wait for its message until they time out. So its error is its message:

    rank 0    work → result ┐              ┌ RankError: rank 1 has failed: ValueError: …
    rank 1    work → error  ┤  all gather  ├ the error itself
    rank 2    work → result ┘              └ RankError: rank 1 has failed: ValueError: …

Cost: one gathered message of pickled objects a call, and nothing in a process alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

from jaxtyping import Shaped
from torch import Tensor, distributed

Own = TypeVar("Own")
Shared = TypeVar("Shared")


class RankError(RuntimeError, ValueError):
    """Another rank has failed; a ValueError too, since arguments of that rank may be wrong."""


@dataclass(frozen=True)
class Transfer:
    """A message that is sent and one that is received at the same time, either of them or none.

    Attributes:
        works: what to wait for.
        received: the message to come, once it has.
        sent: the message that is sent, which must live until it is.
    """

    works: tuple[Any, ...]
    received: Tensor | None
    sent: Tensor | None

    def wait(self) -> Tensor | None:
        """Wait for both, and return what was received.

        Raises:
            RuntimeError: the other rank is gone, or has sent nothing within the group's timeout.
        """
        for work in self.works:
            work.wait()
        return self.received


class Ranks:
    """The ranks of a group, seen by one of them; without a group, one process alone.

    Args:
        group: the group.

    Attributes:
        group: the group.
        rank: number of this rank in it.
        size: number of ranks.

    Raises:
        TypeError: it is no group.
        ValueError: this rank is not in it.
    """

    def __init__(self, group: "distributed.ProcessGroup | None" = None) -> None:
        self.group = group
        self.rank, self.size = 0, 1
        if group is None:
            return

        if not isinstance(group, distributed.ProcessGroup):  # pyright: ignore[reportUnnecessaryIsInstance]
            # torch has a number for a group that this rank is not in.
            if is_initialized() and group == distributed.GroupMember.NON_GROUP_MEMBER:
                raise ValueError("group must be one that this rank is in")
            raise TypeError(f"group must be a process group, got {type(group).__name__}")
        self.rank, self.size = distributed.get_rank(group), distributed.get_world_size(group)

    @classmethod
    def of(cls, group: "distributed.ProcessGroup | None") -> "Ranks":
        """Return the ranks of a group, all by default.

        Raises:
            RuntimeError: there are none, as torch.distributed is not initialized.
        """
        if not is_initialized():
            raise RuntimeError("this needs torch.distributed: call init_process_group first")
        return cls(distributed.group.WORLD if group is None else group)

    def share(self, work: Callable[[], tuple[Own, Shared]]) -> tuple[Own, list[Shared]]:
        """Do some work on each rank, and share a part of its results.

        Args:
            work: returns what this rank keeps to itself, and what all ranks get.

        Returns:
            What this rank keeps, and what it got from each rank, in their order.

        Raises:
            RankError: the work of another rank has failed; an error of this one is raised as it is.
        """
        if self.size == 1:
            own, shared = work()
            return own, [shared]

        own: Any = None
        shared: Any = None
        failure, problem = None, ""
        try:
            own, shared = work()
        except Exception as error:  # noqa: BLE001
            error.add_note(f"This was raised on rank {self.rank} of {self.size}.")
            failure, problem = error, f"{type(error).__name__}: {error}"

        messages: list[Any] = [None] * self.size
        distributed.all_gather_object(messages, (shared, problem), group=self.group)
        if failure is not None:
            raise failure
        for rank, (_, problem) in enumerate(messages):
            if problem:
                raise RankError(f"rank {rank} has failed: {problem}")
        return own, [shared for shared, _ in messages]

    def gather(self, work: Callable[[], Shared]) -> list[Shared]:
        """Do some work on each rank, and return the results of all; errors as for `share`."""
        return self.share(lambda: (None, work()))[1]

    def run(self, work: Callable[[], Own]) -> Own:
        """Do some work on each rank, and return the result of this one; errors as for `share`."""
        return self.share(lambda: (work(), None))[0]

    def first(self, work: Callable[[], Shared]) -> Shared:
        """Do some work on rank 0, and return its result on all; errors as for `share`."""
        results = self.gather(lambda: None if self.rank else work())
        # The result of rank 0.
        return results[0]  # pyright: ignore[reportReturnType]

    def same(self, name: str, work: Callable[[], Any]) -> None:
        """Do some work on each rank, and compare the results; other errors as for `share`.

        Raises:
            ValueError: they are not the same.
        """
        check_same(self.gather(lambda: {name: work()}))

    def deal(self, parts: Sequence[Shared]) -> list[Shared]:
        """Send an object to each rank, and return those that they sent to this one."""
        if self.size == 1:
            return list(parts)

        received: list[Any] = [None] * self.size
        for rank, part in enumerate(parts):
            gathered = received if rank == self.rank else None
            distributed.gather_object(part, gathered, group=self.group, group_dst=rank)
        return received

    def exchange(
        self, ahead: int, message: Shaped[Tensor, "*axes rows width"], num_rows: int
    ) -> Transfer:
        """Send a tensor some ranks ahead, and receive one from as many behind.

        Args:
            ahead: how many ranks; may be negative.
            message: [..., rows, width]; nothing is sent if it is empty.
            num_rows: how many rows there are in the message to come, which is alike.
        """
        if not ahead % self.size:
            return Transfer((), message if message.numel() else None, None)

        to, source = (self.rank + ahead) % self.size, (self.rank - ahead) % self.size
        operations: list[distributed.P2POp] = []
        sent = received = None
        sizes = (*message.shape[:-2], num_rows, message.shape[-1])
        if prod(sizes):
            received = message.new_empty(sizes)
            operations.append(self._operation(distributed.irecv, received, source))
        if message.numel():
            sent = message.contiguous()
            operations.append(self._operation(distributed.isend, sent, to))
        works = distributed.batch_isend_irecv(operations) if operations else []
        return Transfer(tuple(works), received, sent)

    def _operation(self, kind: Any, tensor: Tensor, rank: int) -> "distributed.P2POp":
        return distributed.P2POp(kind, tensor, group=self.group, group_peer=rank)


def is_initialized() -> bool:
    """Return whether this process is one of several, by torch.distributed."""
    return distributed.is_available() and distributed.is_initialized()


def check_same(by_rank: Sequence[Mapping[str, Any]]) -> None:
    """Compare named values of all ranks.

    Raises:
        ValueError: one is not the same on all.

    >>> check_same([{"heads": 8}, {"heads": 6}])
    Traceback (most recent call last):
    ValueError: all ranks must have the same heads, got 8 on rank 0 and 6 on rank 1
    """
    for rank, values in enumerate(by_rank):
        for name, first in by_rank[0].items():
            if values[name] != first:
                raise ValueError(
                    f"all ranks must have the same {name}, got {first} on rank 0 and "
                    f"{values[name]} on rank {rank}"
                )
