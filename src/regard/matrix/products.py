"""A matrix multiplied or materialised, tile by tile."""

from contextlib import suppress

import torch
from torch import Tensor

from regard.matrix.fused import NeedsTiles, fused_rows
from regard.matrix.source import put, take
from regard.matrix.tiles import BUDGET, tiles
from regard.matrix.view import AXES, View

LIMIT = 2**30
"""Default limit of a materialised matrix, in bytes."""


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
    numbers = torch.zeros(batch, heads, queries, keys, dtype=source.dtype, device=source.device)
    with torch.no_grad():
        for tile in tiles(view):
            put(tile.rows_of(numbers), 3, tile.columns, tile.weights)
    return view.outline.trim(numbers, AXES)


def times(view: View, values: Tensor) -> Tensor:
    """Return view @ values, as `torch.matmul` would.

    Args:
        view: [..., queries, keys].
        values: [..., keys, dim] or [keys]. Fewer heads than the view has mean grouped heads.

    Returns:
        [..., queries, dim] or [..., queries].
    """
    _check(values, "values")
    columns = values[:, None] if values.dim() == 1 else values
    columns = _headed(view, columns, "values", axis=-2, size=view.sizes[3], name="keys")
    batch, heads, num_queries, _ = view.sizes
    source, dim = view.source, columns.shape[-1]
    group = heads // max(1, columns.shape[1])
    fused = fused_rows(view, BUDGET) if dim else None
    with torch.no_grad(), torch.autocast(source.device.type, enabled=False):
        if fused is not None:
            with suppress(NeedsTiles):
                product = view.outline.trim(fused.times(columns))
                return product[..., 0] if values.dim() == 1 else product

        sizes = (batch, heads, num_queries, dim)
        output = torch.zeros(sizes, dtype=source.dtype, device=source.device)
        for tile in tiles(view):
            value_heads = range(tile.heads.start, tile.heads.stop)
            if group > 1:
                value_heads = torch.arange(tile.heads.start, tile.heads.stop, device="cpu") // group
            tile_values = take(take(columns[tile.batch], 1, value_heads), 2, tile.columns)
            tile.rows_of(output).copy_(tile.weights @ tile_values.to(source.dtype))
    output = view.outline.trim(output)
    return output[..., 0] if values.dim() == 1 else output


def sums_over_rows(vectors: Tensor, view: View) -> Tensor:
    """Return vectors @ view, as `torch.matmul` would.

    Args:
        vectors: [..., vectors, queries] or [queries].
        view: [..., queries, keys].

    Returns:
        [..., vectors, keys] or [..., keys].
    """
    _check(vectors, "vectors")
    rows = vectors[None] if vectors.dim() == 1 else vectors
    rows = _headed(view, rows, "vectors", axis=-1, size=view.sizes[2], name="queries")
    batch, heads, _, num_keys = view.sizes
    source = view.source
    rows = rows.expand(batch, heads, *rows.shape[2:])
    fused = fused_rows(view, BUDGET) if rows.shape[2] else None
    with torch.no_grad(), torch.autocast(source.device.type, enabled=False):
        if fused is not None and fused.has_columns:
            with suppress(NeedsTiles):
                product = view.outline.trim(fused.times_rows(rows))
                return product[..., 0, :] if vectors.dim() == 1 else product

        sizes = (batch, heads, rows.shape[2], num_keys)
        sums = torch.zeros(sizes, dtype=source.dtype, device=source.device)
        for tile in tiles(view):
            tile_vectors = tile.heads_of(rows)[..., tile.queries].to(source.dtype)
            tile.add_to_columns(sums, tile_vectors @ tile.weights)
    sums = view.outline.trim(sums)
    return sums[..., 0, :] if vectors.dim() == 1 else sums


def _check(values: object, name: str) -> None:
    if not isinstance(values, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(values).__name__}")
    if not values.is_floating_point() or values.dim() < 1:
        raise ValueError(
            f"{name} must be a floating-point tensor with at least one axis, "
            f"got {values.dtype} of shape {list(values.shape)}"
        )


def _headed(
    view: View, values: Tensor, argument: str, *, axis: int, size: int, name: str
) -> Tensor:
    """Return [..., a, b] as [batch, heads or fewer, a, b]."""
    leading = [x for x in AXES[:2] if x in view.axes]
    shape = list(values.shape)
    sizes = dict(zip(AXES, view.sizes, strict=True))

    # 1. The sizes of batch and heads: missing axes have 1, and values may have grouped heads.
    extra = len(leading) - (len(shape) - 2)
    leading_sizes = dict(zip(leading, [1] * extra + shape[:-2], strict=False))
    fits = extra >= 0 and shape[axis] == size
    for leading_axis, count in leading_sizes.items():
        may_group = leading_axis == "heads" and axis == -2
        is_grouped = may_group and count and sizes[leading_axis] % count == 0
        fits = fits and (count in (1, sizes[leading_axis]) or is_grouped)
    if not fits:
        lead = "".join(f"{sizes[x]} {x}, " for x in leading)
        form = f"{size} {name}, dim" if axis == -2 else f"vectors, {size} {name}"
        raise ValueError(
            f"{argument} must have the shape [{lead}{form}] or fewer axes, got {shape}"
        )

    # 2. All four axes.
    batch, heads = (leading_sizes.get(x, 1) for x in AXES[:2])
    headed = values.reshape(batch, heads, *shape[-2:])
    return headed.expand(sizes["batch"], -1, -1, -1)


def _bytes(size: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} bytes"
