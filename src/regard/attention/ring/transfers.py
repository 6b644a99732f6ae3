"""The messages between ranks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, distributed

from regard.attention.ring.schedule import RingSchedule, RingStep


def from_all_ranks(local: Any, group: "distributed.ProcessGroup | None") -> list[Any]:
    """Return the object of each rank of a group, in order; all of them must call it."""
    everyone: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(everyone, local, group=group)
    return everyone


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


@dataclass(frozen=True)
class Ring:
    """The ranks of a group, seen by one of them.

    Attributes:
        group: the group.
        rank: number of this rank in it.
        size: number of ranks.
    """

    group: "distributed.ProcessGroup"
    rank: int
    size: int

    def exchange(self, ahead: int, message: Tensor, num_rows: int) -> Transfer:
        """Send a message some ranks ahead, and receive one from as many behind.

        Args:
            ahead: how many ranks; may be negative.
            message: [batch, key_heads, rows, width]; nothing is sent if there are no rows.
            num_rows: how many rows there are in the message to come, which is alike.
        """
        if not ahead % self.size:
            return Transfer((), message if message.numel() else None, None)

        to, source = (self.rank + ahead) % self.size, (self.rank - ahead) % self.size
        operations: list[distributed.P2POp] = []
        sent = received = None
        batch, key_heads, _, width = message.shape
        if batch * key_heads * num_rows * width:
            received = message.new_empty(batch, key_heads, num_rows, width)
            operations.append(self._operation(distributed.irecv, received, source))
        if message.numel():
            sent = message.contiguous()
            operations.append(self._operation(distributed.isend, sent, to))
        works = distributed.batch_isend_irecv(operations) if operations else []
        return Transfer(tuple(works), received, sent)

    def _operation(self, kind: Any, tensor: Tensor, rank: int) -> "distributed.P2POp":
        return distributed.P2POp(kind, tensor, group=self.group, group_peer=rank)


KeyRows = Float[Tensor, "batch key_heads rows width"]

KeysAndValues = tuple[KeyRows, KeyRows]


def pass_around(
    ring: Ring, schedule: RingSchedule, key: KeyRows, value: KeyRows
) -> Iterator[tuple[int, RingStep, KeysAndValues | None]]:
    """Yield the number of each step, the step, and its keys and values if it needs any.

    Those of the next step are on their way meanwhile. Its own are not copied if it needs them all.

    Args:
        ring: the ranks.
        schedule: the steps of this rank.
        key: its keys, [batch, key_heads, local, key_dim].
        value: its values, [batch, key_heads, local, value_dim].
    """
    own = (_select(key, schedule.sent[0]), _select(value, schedule.sent[0]))
    transfer = _start_transfer(ring, schedule, key, value, 1)
    yield 0, schedule.steps[0], _listed_rows(schedule.steps[0], own)
    del own

    for number, step in enumerate(schedule.steps[1:], start=1):
        # No other name may hold these rows, or they would outlive their step.
        received = transfer.wait()
        transfer = _start_transfer(ring, schedule, key, value, number + 1)
        if received is None:
            yield number, step, None
        else:
            yield number, step, _listed_rows(step, _split(received, key.shape[-1]))


def _start_transfer(
    ring: Ring, schedule: RingSchedule, key: KeyRows, value: KeyRows, number: int
) -> Transfer:
    """Exchange the rows of a step, keys beside values; nothing after the last step."""
    if number == ring.size:
        return Transfer((), None, None)
    rows = [_select(x, schedule.sent[number]) for x in (key, value)]
    return ring.exchange(number, torch.cat(rows, dim=-1), len(schedule.steps[number].owned))


def _split(rows: KeyRows, key_dim: int) -> KeysAndValues:
    return rows[..., :key_dim], rows[..., key_dim:]


def _select(own: KeyRows, rows: Int[Tensor, "chosen"]) -> KeyRows:
    """Return some rows, without a copy if these are all in order."""
    if len(rows) == own.shape[2] and torch.equal(rows, torch.arange(len(rows), device="cpu")):
        return own
    return own.index_select(2, rows.to(own.device))


def _listed_rows(step: RingStep, rows: KeysAndValues) -> KeysAndValues | None:
    """Return the rows of a step, with zeros for those that stick out; None if there are none."""
    if not len(step.owned):
        return None
    if len(step.owned) == len(step.positions):
        return rows
    key, value = (
        x.new_zeros(*x.shape[:2], len(step.positions), x.shape[-1]).index_copy_(
            2, step.owned.to(x.device), x
        )
        for x in rows
    )
    return key, value
