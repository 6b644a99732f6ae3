"""Attention of a vision transformer over the image."""

from typing import TYPE_CHECKING, Any

from regard.calls.call import AttentionCall
from regard.calls.choose import head_or_mean
from regard.matrix import AttentionMatrix
from regard.views.figures.arcs import bare
from regard.views.figures.names import title_of
from regard.views.figures.patches import as_picture, patch_grid
from regard.views.figures.style import COLUMN, drawing, fit_height, one_axes

if TYPE_CHECKING:
    import matplotlib.colors
    import matplotlib.figure


@drawing()
def overlay(
    what: AttentionMatrix | AttentionCall,
    image: Any,
    *,
    token: int = 0,
    head: int | None = None,
    batch: int | None = None,
    patches: tuple[int, int] | None = None,
    first: int | None = None,
    smooth: bool = True,
    ax: Any = None,
    figsize: tuple[float, float] | None = None,
) -> "matplotlib.figure.Figure":
    """Draw the weights of one query on the patches of an image, over the image.

    Larger weights are more opaque.

    Args:
        what: a watched call, or an attention matrix.
        image: the input of the model: a PIL image, or an array or tensor [height, width, 3] or
            [3, height, width] of numbers from 0 to 1 or of bytes.
        token: the query; 0 is the class token, if there is one.
        head: which head; the mean of all heads by default.
        batch: which image, if there are several.
        patches: rows and columns of patches; square by default.
        first: number of tokens before the patches; by default the rest.
        smooth: whether to interpolate between patches.
        ax: a matplotlib Axes to draw in.
        figsize: width and height in inches; by default as wide as a column.

    Raises:
        ImportError: matplotlib is missing.
        IndexError: there is no such token.
        ValueError: the keys don't fit the patches, or image is not an image.

    >>> import torch, regard
    >>> x = torch.randn(1, 4, 17, 8)
    >>> figure = overlay(regard.AttentionMatrix(x, x), torch.rand(3, 64, 64))
    >>> figure.axes[0].get_title(), figure.axes[0].images[1].get_array().shape
    ('token 0, mean of 4 heads', (4, 4))
    """
    matrix = head_or_mean(what, head, batch)
    before, rows, columns = patch_grid(matrix.shape[-1], patches, first)
    picture = as_picture(image)
    if not -matrix.shape[-2] <= token < matrix.shape[-2]:
        raise IndexError(f"token must be an index of {matrix.shape[-2]} tokens, got {token}")
    weights = matrix[..., token, :]
    weights = weights if weights.dim() == 1 else weights.mean(dim=0)
    cells = weights[before:].reshape(rows, columns).cpu().numpy()
    figure, panel = one_axes(ax, COLUMN, COLUMN + 1.0, figsize)
    height, width = picture.shape[:2]
    sides = (-0.5, width - 0.5, height - 0.5, -0.5)
    panel.imshow(picture, extent=sides)
    highest = float(cells.max()) or 1.0
    look: dict[str, Any] = {"cmap": _glow(), "vmin": 0.0, "vmax": highest}
    kind = "bicubic" if smooth else "nearest"
    found = panel.imshow(cells, extent=sides, interpolation=kind, **look)
    bare(panel)
    panel.set(xlim=sides[:2], ylim=sides[2:])
    panel.set_title(", ".join(part for part in (f"token {token}", title_of(what, matrix)) if part))
    figure.colorbar(found, ax=panel, label="weight of a patch", aspect=25)
    if ax is None and figsize is None:
        fit_height(figure)
    return figure


def _glow() -> "matplotlib.colors.Colormap":
    """Return a colormap from transparent to a red that is visible on light and dark images."""
    from matplotlib.colors import LinearSegmentedColormap

    steps = [(1.0, 0.85, 0.3, 0.0), (1.0, 0.6, 0.15, 0.45), (0.86, 0.1, 0.15, 0.85)]
    return LinearSegmentedColormap.from_list("regard_glow", steps)
