"""Read and write the rows of a strip: strided views if they are regular, gathered otherwise."""

from jaxtyping import Float
from torch import Tensor

from regard.patterns.layout import StripRows


def take(
    x: Float[Tensor, "heads sequence dim"], rows: StripRows
) -> Float[Tensor, "r heads count dim"]:
    """Return the rows of each rectangle; regular rows are a view that may overlap itself."""
    if rows.pitch is not None:
        return _view(x, rows)
    index = rows.index().to(x.device)
    gathered = x.transpose(0, 1).index_select(0, index.flatten())
    return gathered.view(*index.shape, *gathered.shape[1:]).transpose(1, 2)


def put(
    x: Float[Tensor, "heads sequence dim"],
    rows: StripRows,
    values: Float[Tensor, "r heads count dim"],
) -> None:
    """Write the rows of each rectangle; no row may be in two of them."""
    if rows.pitch is not None:
        _view(x, rows).copy_(values)
    else:
        index = rows.index().to(x.device)
        x.transpose(0, 1)[index] = values.transpose(1, 2).to(x.dtype)


def add(
    x: Float[Tensor, "heads sequence dim"],
    rows: StripRows,
    values: Float[Tensor, "r heads count dim"],
) -> None:
    """Add to the rows of each rectangle; a row may be in several of them.

    In memory, x must be [sequence, heads, dim].
    """
    width = _disjoint_width(rows)
    if width is not None:
        for first in range(0, rows.count, width):
            piece = rows.part(first, min(width, rows.count - first))
            _view(x, piece).add_(values[:, :, first : first + width])
        return
    index = rows.index().to(x.device).flatten()
    heads, length, dim = x.shape
    flat = x.transpose(0, 1).view(length, heads * dim)
    values = values.transpose(1, 2).reshape(len(index), heads * dim).to(x.dtype)
    flat.scatter_add_(0, index[:, None].expand(-1, heads * dim), values)


def _view(x: Tensor, rows: StripRows) -> Tensor:
    assert rows.pitch is not None
    head, row, dim = x.stride()
    return x.as_strided(
        (len(rows.start), x.shape[0], rows.count, x.shape[2]),
        (rows.pitch * row, head, rows.step * row, dim),
        x.storage_offset() + int(rows.start[0]) * row,
    )


def _disjoint_width(rows: StripRows) -> int | None:
    """Return how many rows of each rectangle can be written at once without overlap."""
    if rows.pitch is None:
        return None
    num_rectangles = len(rows.start)
    if num_rectangles == 1 or 0 < rows.pitch * num_rectangles <= rows.step:
        return rows.count
    if rows.pitch and rows.pitch % rows.step == 0:
        return rows.pitch // rows.step
    return None
