"""Functions that run on each rank of a ring."""

import os
import signal
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed

import regard
from regard.attention import ring
from regard.distributed.ranks import Ranks
from regard.patterns import Pattern
from tests.attention.cases import Case, learned_tensors


def results(case: Case, dealt: list[Tensor], lse: bool) -> dict[str, Tensor]:
    """Return all that a rank gives for its part of a case, by name as `cases.results` does."""
    mine = dealt[distributed.get_rank()]
    inputs = [x[:, :, mine].requires_grad_() for x in (case.query, case.key, case.value)]
    options = case.options | {"positions": mine, "group": distributed.group.WORLD}
    learned = learned_tensors(case.bias)
    if lse:
        found = regard.attend_with_lse(*inputs, **options)
        grads = (case.grad[:, :, mine], case.grad_lse[:, :, mine])
    else:
        found = (regard.attend(*inputs, **options),)
        grads = (case.grad[:, :, mine],)
    back = torch.autograd.grad(found, [*inputs, *learned], grads)
    names = ["grad of query", "grad of key", "grad of value", "grad of bias"]
    named = dict(zip(["output", "lse"], (x.detach() for x in found), strict=False))
    return named | dict(zip(names, back, strict=False))


def sharded(x: Tensor, order: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return a rank's part of a tensor, its positions, and the tensor put together again."""
    part = ring.shard(x, axis=1, order=order)
    whole = ring.unshard(part, axis=1, order=order)
    return part, ring.positions(x.shape[1], order=order), whole


def planned(case: Case, dealt: list[Tensor]) -> tuple[Any, list[tuple[int, int]]]:
    """Return the plan of a call, and the rows that a rank really sends in it, and to whom."""
    mine, sent = dealt[distributed.get_rank()], []
    exchange = Ranks.exchange

    def noted(self: Ranks, ahead: int, message: Tensor, num_rows: int) -> Any:
        sent.append(((self.rank + ahead) % self.size, message.shape[2]))
        return exchange(self, ahead, message, num_rows)

    inputs = [x[:, :, mine] for x in (case.query, case.key, case.value)]
    options: dict[str, Any] = {"pattern": case.pattern, "positions": mine}
    Ranks.exchange = noted
    try:
        regard.attend(*inputs, **options, group=distributed.group.WORLD)
    finally:
        Ranks.exchange = exchange
    return regard.plan(*inputs, **options, group=distributed.group.WORLD), sent


def in_order(x: Tensor, pattern: Pattern) -> Tensor:
    """Attend without positions: each rank follows the one before."""
    rank, size = distributed.get_rank(), distributed.get_world_size()
    part = x.tensor_split(size, dim=2)[rank]
    return regard.attend(part, part, part, pattern=pattern, group=distributed.group.WORLD)


def refused(*by_rank: dict[str, Any]) -> None:
    """Attend with options of each rank's own, which don't go together."""
    options = dict(by_rank[distributed.get_rank()])
    x = torch.zeros(1, 2, options.pop("length", 4), 3, dtype=options.pop("dtype", torch.float32))
    key = x[:, :, : options.pop("keys", x.shape[2])]
    regard.attend(x, key, key, group=distributed.group.WORLD, **options)


def watched() -> str:
    """Return why a call of several ranks has no matrix."""

    class Layer(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return regard.attend(x, x, x, group=distributed.group.WORLD)

    with regard.watch(layer := Layer()) as seen:
        layer(torch.randn(1, 2, 4, 3))
    return seen[0].problem


def left_alone(backward: bool) -> None:
    """Attend in a ring whose last rank dies: before the call, or between the two passes."""
    group = distributed.new_group(timeout=timedelta(seconds=5))
    last = distributed.get_rank() == distributed.get_world_size() - 1
    x = torch.randn(1, 1, 64, 4, requires_grad=True)
    if last and not backward:
        os.kill(os.getpid(), signal.SIGKILL)
    output = regard.attend(x, x, x, group=group)
    if last:
        os.kill(os.getpid(), signal.SIGKILL)
    output.sum().backward()
