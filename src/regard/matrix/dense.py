"""Materialise a matrix, if it is small enough."""

import torch
from torch import Tensor

from regard.matrix.index import put
from regard.matrix.tiles import tiles
from regard.matrix.view import AXES, View

LIMIT = 2**30
"""Default limit in bytes."""


def dense(view: View, limit: int = LIMIT) -> Tensor:
    """Return all numbers of a view.

    Raises:
        ValueError: they take more bytes than the limit.
    """
    batch, heads, queries, keys = view.sizes
    source = view.source
    size = batch * heads * queries * keys * source.dtype.itemsize
    if size > limit:
        shape = " × ".join(f"{n:,} {axis}" for n, axis in zip(view.shape, view.axes, strict=True))
        raise ValueError(
            f"{shape} would take {_bytes(size)}, and the limit is {_bytes(limit)}: take a part "
            "such as A[0, 3, :512, :512], use rows(), columns(), pool() or summarize(), which "
            f"need no such matrix, or allow it with limit={size}"
        )
    found = torch.zeros(batch, heads, queries, keys, dtype=source.dtype, device=source.device)
    with torch.no_grad():
        for tile in tiles(view):
            put(tile.rows_of(found), 3, tile.columns, tile.weights)
    return view.outline.trim(found, AXES)


def _bytes(size: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} bytes"
