"""The messages between ranks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, distributed

from regard.attention.ring.route import Leg, Route


def from_all_ranks(mine: Any, group: "distributed.ProcessGroup | None") -> list[Any]:
    """Return what each rank of a group has, in order; all of them must call it."""
    everyone: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(everyone, mine, group=group)
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


Rows = Float[Tensor, "batch key_heads rows width"]


def around(ring: Ring, route: Route, own: Rows) -> Iterator[tuple[int, Leg, Rows | None]]:
    """Yield each step with its leg, and its keys and values if it needs any.

    Those of the next step are on their way meanwhile.

    Args:
        ring: the ranks.
        route: the way of this rank.
        own: its keys and values, [batch, key_heads, local, key_dim + value_dim].
    """
    coming = Transfer((), _selected(own, route.sent[0]), None)
    for step, leg in enumerate(route.legs):
        rows = coming.wait()
        if step + 1 < ring.size:
            coming = _posted(ring, route, own, step + 1)
        yield step, leg, None if rows is None or not rows.numel() else _placed(leg, rows)


def _posted(ring: Ring, route: Route, own: Rows, step: int) -> Transfer:
    message = _selected(own, route.sent[step])
    return ring.exchange(step, message, len(route.legs[step].wanted))


def _selected(own: Rows, rows: Int[Tensor, "chosen"]) -> Rows:
    """Return some rows, without a copy if these are all in order."""
    if len(rows) == own.shape[2] and torch.equal(rows, torch.arange(len(rows), device="cpu")):
        return own
    return own.index_select(2, rows.to(own.device))


def _placed(leg: Leg, rows: Rows) -> Rows:
    """Return the rows of a leg, with zeros for those that stick out."""
    if len(leg.wanted) == len(leg.positions):
        return rows
    batch, key_heads, _, width = rows.shape
    placed = rows.new_zeros(batch, key_heads, len(leg.positions), width)
    return placed.index_copy_(2, leg.wanted.to(rows.device), rows)
