"""Reduce groups of neighbours along an axis."""

from typing import Literal

import torch
from torch import Tensor

GROUP = 64
"""How many columns are looked at as one."""

ROW_GROUP = 16
"""How many rows are summed up as one: as many as a cell of the finest map of a recording has."""


How = Literal["sum", "max", "signed max"]
"""To sum up, to take the largest, or to take the largest by size, with its sign."""


def grouped(values: Tensor, axis: int, how: How, size: int = GROUP, skipped: int = 0) -> Tensor:
    """Reduce an axis group by group; the first and the last group may be smaller.

    Args:
        values: any tensor.
        axis: the axis, from the front.
        how: the reduction.
        size: size of a group.
        skipped: missing elements at the start of the first group.
    """
    if size == 1:
        return values
    length = values.shape[axis]
    if skipped % size == 0 and length % size == 0:
        return _reduced(values.unflatten(axis, (-1, size)), axis + 1, how)
    start = min(-skipped % size, length)
    stop = start + (length - start) // size * size
    parts = [
        values.narrow(axis, 0, start).unsqueeze(axis),
        values.narrow(axis, start, stop - start).unflatten(axis, (-1, size)),
        values.narrow(axis, stop, length - stop).unsqueeze(axis),
    ]
    parts = [x for x in parts if x.shape[axis] and x.shape[axis + 1]]
    return torch.cat([_reduced(x, axis + 1, how) for x in parts], dim=axis)


def _reduced(values: Tensor, axis: int, how: How) -> Tensor:
    if how == "signed max":
        return larger(values.amin(dim=axis), values.amax(dim=axis), how)
    return values.amax(dim=axis) if how == "max" else values.sum(dim=axis)


def larger(first: Tensor, second: Tensor, how: Literal["max", "signed max"]) -> Tensor:
    """Return the larger of two numbers, or the one of the larger size; NaN if one is NaN."""
    high = torch.maximum(first, second)
    if how == "max":
        return high
    low = torch.minimum(first, second)
    return torch.where(high >= -low, high, low)
