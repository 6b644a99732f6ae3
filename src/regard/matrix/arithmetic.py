"""Arithmetic on rectangles of pairs: products of grouped heads, exponentials, groups of neighbours.

Each function avoids something that is slow: repeated keys, underflow, a pass over every number.
"""

import math
from collections.abc import Iterator
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

GROUP = 64
"""Number of neighbouring columns of which only the maximum is kept; see `group_max`."""

ROW_GROUP = 16
"""Number of rows that are summed up as one: as many as a cell of the finest map of a recording."""

How = Literal["sum", "max", "signed max"]
"""The sum, the maximum, or the number with the largest absolute value, with its sign."""


def head_runs(heads: range, group: int, most: int) -> Iterator[range]:
    """Split heads into runs in which each key head serves equally many.

    Args:
        heads: the heads.
        group: number of heads per key head.
        most: maximum number of heads of a run.
    """
    while heads:
        sizes = range(min(most, len(heads)), 0, -1)
        size = next(size for size in sizes if _shared_equally(heads[:size], group) is not None)
        yield heads[:size]
        heads = heads[size:]


def key_heads_of(heads: range, group: int) -> range:
    """Return the key heads of a run of heads, as `head_runs` yields it."""
    key_heads = _shared_equally(heads, group)
    assert key_heads is not None
    return key_heads


def _shared_equally(heads: range, group: int) -> range | None:
    """Return the key heads of some heads, or None if they aren't used equally often."""
    used = [head // group for head in heads]
    distinct = sorted(set(used))
    step = distinct[1] - distinct[0] if len(distinct) > 1 else 1
    key_heads = range(distinct[0], distinct[-1] + 1, step)
    size = len(heads) // len(key_heads)
    return key_heads if used == [head for head in key_heads for _ in range(size)] else None


def as_rows_of_key_heads(
    rows: Float[Tensor, "batch heads rows dim"], num_key_heads: int
) -> Float[Tensor, "batch key_heads grouped_rows dim"]:
    """Return rows grouped by key head: heads that share one become further rows of it."""
    batch, heads, count, dim = rows.shape
    return rows.reshape(batch, num_key_heads, heads // num_key_heads * count, dim)


def write_products(
    rows: Float[Tensor, "batch key_heads rows dim"],
    columns: Float[Tensor, "batch key_heads columns dim"],
    out: Float[Tensor, "batch key_heads rows columns"],
) -> None:
    """Write the product of each row with each column of its key head."""
    batch, key_heads = out.shape[:2]
    # One product uses all threads; a batch of them uses one thread each.
    one_by_one = out.device.type == "cpu" and batch * key_heads <= torch.get_num_threads()
    for head_rows, head_columns, head_outs in zip(rows, columns, out, strict=True):
        if one_by_one:
            for left, right, product in zip(head_rows, head_columns, head_outs, strict=True):
                torch.mm(left, right.T, out=product)
        else:
            torch.bmm(head_rows, head_columns.mT, out=head_outs)


def exponential_(x: Tensor, out: Tensor | None = None) -> Tensor:
    """Return e to the power of x, 0 where that is below 1.29 times the smallest normal number.

    PyTorch's exponential is some sixty times slower on the CPU where the result underflows, as it
    does for every masked pair, and for most pairs of a head whose weight is on a sink. So exponents
    that would underflow are raised to just above that, and their results set to 0.

    Args:
        x: the exponents, which are raised in place.
        out: where to write the result; by default in place.
    """
    # 0.25 above the logarithm of the smallest normal number.
    least = math.log(torch.finfo(x.dtype).tiny) + 0.25
    result = torch.exp(x.clamp_min_(least), out=x if out is None else out)
    return functional.threshold(result, math.exp(least + 1e-3), 0.0, inplace=True)


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

    # The first group, whole groups and the last group; empty ones are left out.
    start = min(-skipped % size, length)
    stop = start + (length - start) // size * size
    parts = [
        values.narrow(axis, 0, start).unsqueeze(axis),
        values.narrow(axis, start, stop - start).unflatten(axis, (-1, size)),
        values.narrow(axis, stop, length - stop).unsqueeze(axis),
    ]
    parts = [part for part in parts if part.shape[axis] and part.shape[axis + 1]]
    return torch.cat([_reduced(part, axis + 1, how) for part in parts], dim=axis)


def _reduced(values: Tensor, axis: int, how: How) -> Tensor:
    if how == "signed max":
        return larger(values.amin(dim=axis), values.amax(dim=axis), how)
    return values.amax(dim=axis) if how == "max" else values.sum(dim=axis)


def larger(first: Tensor, second: Tensor, how: Literal["max", "signed max"]) -> Tensor:
    """Return the larger of two numbers, or of their absolute values; NaN if one is NaN."""
    high = torch.maximum(first, second)
    if how == "max":
        return high
    low = torch.minimum(first, second)
    return torch.where(high >= -low, high, low)
