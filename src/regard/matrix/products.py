"""Products with an attention matrix, tile by tile."""

from contextlib import suppress

import torch
from torch import Tensor

from regard.matrix.fused import NeedsTiles, fused_rows
from regard.matrix.index import take
from regard.matrix.tiles import BUDGET, tiles
from regard.matrix.view import AXES, View


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
    if fused is not None:
        no_autocast = torch.autocast(source.device.type, enabled=False)
        with suppress(NeedsTiles), torch.no_grad(), no_autocast:
            product = view.outline.trim(fused.times(columns))
            return product[..., 0] if values.dim() == 1 else product
    found = torch.zeros(batch, heads, num_queries, dim, dtype=source.dtype, device=source.device)
    with torch.no_grad(), torch.autocast(source.device.type, enabled=False):
        for tile in tiles(view):
            some = range(tile.heads.start, tile.heads.stop)
            if group > 1:
                some = torch.arange(tile.heads.start, tile.heads.stop, device="cpu") // group
            mine = take(columns[tile.batch], 1, some)
            mine = take(mine, 2, tile.columns).to(source.dtype)
            tile.rows_of(found).copy_(tile.weights @ mine)
    found = view.outline.trim(found)
    return found[..., 0] if values.dim() == 1 else found


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
    found = torch.zeros(
        batch, heads, rows.shape[2], num_keys, dtype=source.dtype, device=source.device
    )
    with torch.no_grad(), torch.autocast(source.device.type, enabled=False):
        for tile in tiles(view):
            mine = tile.heads_of(rows)[..., tile.queries].to(source.dtype)
            tile.add_to_columns(found, mine @ tile.weights)
    found = view.outline.trim(found)
    return found[..., 0, :] if vectors.dim() == 1 else found


def _check(values: object, name: str) -> None:
    if not isinstance(values, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(values).__name__}")
    if not values.is_floating_point() or values.dim() < 1:
        raise ValueError(
            f"{name} must be a floating-point tensor with at least one axis, "
            f"got {values.dtype} of shape {list(values.shape)}"
        )


def _headed(view: View, values: Tensor, what: str, *, axis: int, size: int, name: str) -> Tensor:
    """Return [..., a, b] as [batch, heads or fewer, a, b]."""
    leading = [x for x in AXES[:2] if x in view.axes]
    shape = list(values.shape)
    sizes = dict(zip(AXES, view.sizes, strict=True))
    extra = len(leading) - (len(shape) - 2)
    given = dict(zip(leading, [1] * extra + shape[:-2], strict=False))
    fits = extra >= 0 and shape[axis] == size
    for one, count in given.items():
        grouped = one == "heads" and axis == -2 and count and sizes[one] % count == 0
        fits = fits and (count in (1, sizes[one]) or grouped)
    if not fits:
        lead = "".join(f"{sizes[x]} {x}, " for x in leading)
        form = f"{size} {name}, dim" if axis == -2 else f"vectors, {size} {name}"
        raise ValueError(f"{what} must have the shape [{lead}{form}] or fewer axes, got {shape}")
    headed = values.reshape(given.get("batch", 1), given.get("heads", 1), *shape[-2:])
    return headed.expand(sizes["batch"], -1, -1, -1)
