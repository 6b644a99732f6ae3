"""Compute heads that share a key head together, without repeating keys."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor


def head_runs(heads: range, group: int, most: int) -> Iterator[range]:
    """Split heads into runs in which each key head serves equally many.

    Args:
        heads: the heads.
        group: number of heads per key head.
        most: maximum number of heads of a run.
    """
    while heads:
        sizes = range(min(most, len(heads)), 0, -1)
        size = next(size for size in sizes if key_heads_of(heads[:size], group) is not None)
        yield heads[:size]
        heads = heads[size:]


def key_heads_of(heads: range, group: int) -> range | None:
    """Return the key heads of a run of heads, or None if they aren't used equally often."""
    used = [head // group for head in heads]
    distinct = sorted(set(used))
    step = distinct[1] - distinct[0] if len(distinct) > 1 else 1
    found = range(distinct[0], distinct[-1] + 1, step)
    size = len(heads) // len(found)
    return found if used == [head for head in found for _ in range(size)] else None


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
    if out.device.type == "cpu" and batch * key_heads <= torch.get_num_threads():
        # One product uses all threads; a batch of them uses one thread each.
        for some_rows, some_columns, outs in zip(rows, columns, out, strict=True):
            for one_row, one_column, one in zip(some_rows, some_columns, outs, strict=True):
                torch.mm(one_row, one_column.T, out=one)
    else:
        for some_rows, some_columns, outs in zip(rows, columns, out, strict=True):
            torch.bmm(some_rows, some_columns.mT, out=outs)
