"""The messages between ranks."""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.ring.schedule import RingSchedule, RingStep
from regard.distributed.ranks import Ranks, Transfer

KeyRows = Float[Tensor, "batch key_heads rows width"]

KeysAndValues = tuple[KeyRows, KeyRows]


def pass_around(
    ranks: Ranks, schedule: RingSchedule, key: KeyRows, value: KeyRows
) -> Iterator[tuple[int, RingStep, KeysAndValues | None]]:
    """Yield the number of each step, the step, and its keys and values if it needs any.

    Those of the next step are on their way meanwhile. Its own are not copied if it needs them all.

    Args:
        ranks: the ranks.
        schedule: the steps of this rank.
        key: its keys, [batch, key_heads, local, key_dim].
        value: its values, [batch, key_heads, local, value_dim].
    """
    own = (_select(key, schedule.sent[0]), _select(value, schedule.sent[0]))
    transfer = _start_transfer(ranks, schedule, key, value, 1)
    yield 0, schedule.steps[0], _listed_rows(schedule.steps[0], own)
    del own

    for number, step in enumerate(schedule.steps[1:], start=1):
        # No other name may hold these rows, or they would outlive their step.
        received = transfer.wait()
        transfer = _start_transfer(ranks, schedule, key, value, number + 1)
        if received is None:
            yield number, step, None
        else:
            yield number, step, _listed_rows(step, _split(received, key.shape[-1]))


def _start_transfer(
    ranks: Ranks, schedule: RingSchedule, key: KeyRows, value: KeyRows, number: int
) -> Transfer:
    """Exchange the rows of a step, keys beside values; nothing after the last step."""
    if number == ranks.size:
        return Transfer((), None, None)
    rows = [_select(x, schedule.sent[number]) for x in (key, value)]
    return ranks.exchange(number, torch.cat(rows, dim=-1), len(schedule.steps[number].owned))


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
