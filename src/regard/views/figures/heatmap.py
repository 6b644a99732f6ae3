"""Attention matrices as heatmaps."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.calls.call import AttentionCall
from regard.calls.choose import head_of, one_sequence, sequence_of
from regard.errors import check_choice
from regard.matrix import EffectMatrix, NormMatrix
from regard.matrix.lazy_matrix import LazyMatrix
from regard.views.figures.colours import diverging, sequential, unknown
from regard.views.figures.fonts import width_of, wrapped
from regard.views.figures.names import title_of
from regard.views.figures.style import (
    COLUMN,
    LEAST,
    PAGE,
    TALLEST,
    drawing,
    fit_height,
    new_figure,
    one_axes,
)
from regard.views.figures.ticks import LINE, Ticks, tick
from regard.views.figures.tokens import Labels, positions_of, row_and_column_labels

if TYPE_CHECKING:
    import matplotlib.colors
    import matplotlib.figure


_BAR = 40.0
"""Room for the colour bar of several heads, in points."""

_BETWEEN = 10.0
"""Room between two heads, in points."""


class _Map(NamedTuple):
    """The picture of a head.

    Attributes:
        matrix: [queries, keys].
        cells: [cell_rows, cell_columns].
        height: queries per cell.
        width: keys per cell.
    """

    matrix: LazyMatrix
    cells: NDArray[Any]
    height: int
    width: int


@drawing()
def heatmap(
    what: LazyMatrix | AttentionCall,
    tokens: Sequence[str] | None = None,
    *,
    key_tokens: Sequence[str] | None = None,
    head: int | Sequence[int] | None = None,
    batch: int | None = None,
    scale: Literal["linear", "log"] = "linear",
    pool: Literal["mean", "max"] = "mean",
    size: int = 512,
    vmax: float | None = None,
    ax: Any = None,
    figsize: tuple[float, float] | None = None,
) -> "matplotlib.figure.Figure":
    """Draw the weights of one or more heads, queries downwards and keys across.

    Effects are blue where they support the target and orange where they oppose it.

    Args:
        what: a watched call, or a matrix of weights, effects or norms.
        tokens: such as `tokenizer.convert_ids_to_tokens(ids)`. They label the axes if they fit;
            otherwise positions do.
        key_tokens: the key tokens, for cross-attention.
        head: which head or heads; all by default.
        batch: which sequence, if there are several.
        scale: "linear", or "log" down to 1/10,000 of the maximum, not for effects. Pairs of weight
            0, such as masked ones, have the background colour in both.
        pool: pooling of a cell with several pairs, "mean" or "max".
        size: largest number of cells along an axis. Longer texts are pooled; see the colour bar.
        vmax: the number at the end of the colour scale; by default the largest drawn, by size.
        ax: a matplotlib Axes, for a single head.
        figsize: width and height in inches; by default as wide as a column.

    Raises:
        ImportError: matplotlib is missing.
        ValueError: tokens don't fit the matrix, ax is given for several heads, or scale is "log"
            for effects.

    >>> import torch, regard
    >>> x = torch.randn(1, 4, 5, 8)
    >>> figure = heatmap(regard.AttentionMatrix(x, x), ["a", "b", "c", "d", "e"], head=2)
    >>> [text.get_text() for text in figure.axes[0].get_xticklabels()]
    ['a', 'b', 'c', 'd', 'e']
    """
    from matplotlib.ticker import FuncFormatter

    check_choice("scale", scale, ("linear", "log"))
    matrix = sequence_of(what, batch) if isinstance(what, LazyMatrix) else one_sequence(what, batch)
    signed = matrix.view.source.signed
    if signed and scale == "log":
        raise ValueError('scale must be "linear" for effects, which are signed, got "log"')
    kind = what.kind if isinstance(what, AttentionCall) else "self"
    rows, columns = row_and_column_labels(matrix, tokens, key_tokens, kind=kind)
    chosen = _chosen(matrix, head)
    width, across = _grid(len(chosen), rows, columns, figsize)
    down = -(-len(chosen) // across)
    cells = max(32, size // across) if across > 1 else size
    maps = _maps(chosen, cells, pool)
    if len(maps) > 1 and ax is not None:
        raise ValueError(f"ax takes one head, got {len(maps)}: choose one, such as head=0")
    if len(maps) == 1:
        figure, only = one_axes(ax, COLUMN, COLUMN + 1.0, figsize)
        panels: list[Any] = [only]
    else:
        figure = new_figure(width, width * down / across + 1.5, figsize)
        panels = list(figure.subplots(down, across, squeeze=False).flat)
    if signed:
        norm, extend = _signed_norm(maps, vmax)
        colours = diverging(panels[0])
    else:
        norm, extend = _norm(maps, scale, vmax)
        colours = sequential(panels[0], lowest=0.1 if scale == "log" else 0.0)
    image: Any = None
    for panel, one in zip(panels, maps, strict=False):
        image = _draw(panel, one, norm, colours)
        panel.set_title(title_of(what if len(maps) == 1 else None, one.matrix))
    for panel in panels[len(maps) :]:
        panel.set_visible(False)
    shown = panels[: len(maps)]
    plain: dict[str, Any] = {"format": FuncFormatter(_plain)} if scale == "log" else {}
    # Beside a single row of panels, a bar would be too short for its label.
    flat = down == 1 and len(maps) > 1
    place: dict[str, Any] = {"location": "bottom", "aspect": 40} if flat else {"aspect": 25}
    bar = figure.colorbar(image, ax=shown, label="weight", extend=extend, **place, **plain)
    panel_width, panel_height = _label(shown, across, (rows, columns), maps[0].matrix)
    room = across * panel_width if flat else down * panel_height
    bar.set_label(wrapped(_about(maps[0], pool), 8.0, room, between=" "))
    if ax is None and figsize is None:
        fit_height(figure)
    return figure


def _chosen(matrix: LazyMatrix, head: int | Sequence[int] | None) -> list[LazyMatrix]:
    """Return the matrix [queries, keys] of each head to draw."""
    if "heads" not in matrix.axes or isinstance(head, int):
        return [head_of(matrix, head if isinstance(head, int) else None)]
    heads = list(range(matrix.shape[0]) if head is None else head)
    if not heads:
        raise ValueError("head must not be empty: leave it out to draw all")
    return [matrix[number] for number in heads]


def _grid(
    count: int, rows: Labels, columns: Labels, figsize: tuple[float, float] | None
) -> tuple[float, int]:
    """Return the width of a figure in inches and its number of panels across.

    The smallest figure, a column or a page wide, with room for tokens; if there is none, positions
    label the axes.
    """
    most, width = (4, COLUMN) if count <= 12 else (8, PAGE)
    usual = width, _even(count, most)
    if rows is None or columns is None or count == 1:
        return usual
    sizes = [figsize] if figsize else [(COLUMN, TALLEST), (PAGE, TALLEST)]
    beside, below = (max(width_of(text, LEAST) for text in each) + 20.0 for each in (rows, columns))
    found: dict[tuple[float, int], float] = {}
    for width, highest in sizes:
        for across in range(1, min(count, 2 * most) + 1):
            down = -(-count // across)
            bar_beside, bar_below = (_BAR, 0.0) if down > 1 else (0.0, _BAR)
            panel_width = (72 * width - beside - bar_beside) / across - _BETWEEN
            panel_height = panel_width * _box_aspect(len(rows), len(columns))
            fits = min(panel_width / len(columns), panel_height / len(rows)) >= LINE * LEAST
            height = down * (panel_height + _BETWEEN) + below + bar_below
            if fits and height <= 72 * highest:
                found[width, _even(count, across)] = width * height
    return min(found, key=found.__getitem__, default=usual)


def _even(count: int, most: int) -> int:
    """Return how many panels are in a row, as evenly as possible: five are three and two."""
    return -(-count // -(-count // most))


def _maps(matrices: list[LazyMatrix], size: int, pool: Literal["mean", "max"]) -> list[_Map]:
    pooled = [(matrix, matrix.pool(size, pool)) for matrix in matrices]
    return [
        _Map(one, found.cells.cpu().numpy(), found.height, found.width) for one, found in pooled
    ]


def _norm(
    maps: list[_Map], scale: str, vmax: float | None
) -> "tuple[matplotlib.colors.Normalize, str]":
    """Return the normalisation of colours, and the ends that the colour bar extends."""
    from matplotlib.colors import LogNorm, Normalize

    numbers = np.concatenate([one.cells[one.cells > 0.0] for one in maps])
    strongest = float(numbers.max(initial=0.0))
    highest = float(vmax or strongest or 1.0)
    above = "max" if strongest > highest else "neither"
    if scale == "linear":
        return Normalize(0.0, highest), above
    weakest = float(numbers.min(initial=highest))
    lowest = min(max(1e-4 * highest, weakest), 0.1 * highest)
    below = "min" if weakest < lowest else "neither"
    return LogNorm(lowest, highest), "both" if above == "max" and below == "min" else (
        above if above == "max" else below
    )


def _signed_norm(maps: list[_Map], vmax: float | None) -> "tuple[matplotlib.colors.Normalize, str]":
    """Return the same with 0 in the middle."""
    from matplotlib.colors import Normalize

    numbers = np.concatenate([one.cells[~np.isnan(one.cells)] for one in maps])
    highest = float(vmax or np.abs(numbers).max(initial=0.0) or 1.0)
    outside = (bool((numbers < -highest).any()), bool((numbers > highest).any()))
    ends = {(True, True): "both", (True, False): "min", (False, True): "max"}
    return Normalize(-highest, highest), ends.get(outside, "neither")


def _draw(ax: Any, one: _Map, norm: Any, colours: Any) -> Any:
    """Draw a head with query i at row i and key j at column j, pooled or not."""
    from matplotlib.colors import ListedColormap

    num_rows, num_columns = one.matrix.shape
    cell_rows, cell_columns = one.cells.shape
    corners = (-0.5, cell_columns * one.width - 0.5, cell_rows * one.height - 0.5, -0.5)
    where: dict[str, Any] = {"extent": corners, "aspect": "auto"}
    image = ax.imshow(one.cells, cmap=colours, norm=norm, **where)
    nothing = np.isnan(one.cells)
    if nothing.any():
        grey = ListedColormap([unknown(ax)])
        ax.imshow(np.where(nothing, 1.0, np.nan), cmap=grey, vmin=0.0, vmax=1.0, **where)
    ax.set(xlim=(-0.5, num_columns - 0.5), ylim=(num_rows - 0.5, -0.5))
    ax.set_box_aspect(_box_aspect(num_rows, num_columns))
    ax.grid(visible=False)
    return image


def _box_aspect(num_rows: int, num_columns: int) -> float:
    """Return the height of a head over its width: square cells, unless it would be too narrow."""
    return min(3.0, max(1 / 3, num_rows / max(1, num_columns)))


def _plain(weight: float, _: Any) -> str:
    """Return a weight, without an exponent unless it is tiny."""
    return f"{weight:.7f}".rstrip("0").rstrip(".") if weight >= 1e-6 else f"{weight:g}"


def _about(one: _Map, pool: str) -> list[str]:
    """Return the label of the colour bar, in parts that can be wrapped."""
    name = "norm" if isinstance(one.matrix, NormMatrix) else "weight"
    name = "effect" if isinstance(one.matrix, EffectMatrix) else name
    if one.height == one.width == 1:
        return [name]
    what = f"mean {name} of" if pool == "mean" else f"largest {name} of"
    return [what, f"{one.height} × {one.width} tokens"]


def _label(
    panels: list[Any], across: int, labels: tuple[Labels, Labels], matrix: LazyMatrix
) -> tuple[float, float]:
    """Label rows left of a grid and columns below it; return the size of a panel, in points."""
    left = panels[::across]
    bottom = panels[-across:] if len(panels) > across else panels
    for panel in panels:
        if panel not in left:
            panel.set_yticks([])
        if panel not in bottom:
            panel.set_xticks([])
    for panel in left:
        panel.set_ylabel("query")
    for panel in bottom:
        panel.set_xlabel("key")
    return tick(
        Ticks(left, "y", labels[0], positions_of(matrix, "queries")),
        Ticks(bottom, "x", labels[1], positions_of(matrix, "keys")),
    )
