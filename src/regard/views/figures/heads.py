"""All heads of a model: a small picture or a number for each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from regard.calls.call import AttentionCall
from regard.calls.call import layer_names as names_of_modules
from regard.calls.choose import one_sequence
from regard.calls.measures import MEASURES, measures
from regard.calls.outputs import HeadEffects
from regard.calls.tokens import readable
from regard.errors import check_choice
from regard.matrix import AttentionMatrix
from regard.matrix.arithmetic import GROUP
from regard.views.figures.colours import diverging, muted, sequential, unknown
from regard.views.figures.fonts import drawable, width_of, wrapped
from regard.views.figures.names import layer_names
from regard.views.figures.style import (
    COLUMN,
    DPI,
    PAGE,
    SMALL,
    TALLEST,
    drawing,
    fit_height,
    new_figure,
)
from regard.views.figures.ticks import round_places

if TYPE_CHECKING:
    import matplotlib.figure

_PICTURE = 48
"""Largest number of cells along an axis of a small picture."""

_MARGIN = 0.4
"""Margin for numbers and labels beside a grid, in inches."""


@drawing()
def heads(
    calls: Sequence[AttentionMatrix | AttentionCall],
    values: str | HeadEffects | Float[Tensor, "calls heads"] | None = None,
    *,
    label: str | None = None,
    batch: int | None = None,
    tokens: Sequence[str] | None = None,
    figsize: tuple[float, float] | None = None,
) -> "matplotlib.figure.Figure":
    """Draw a small picture, or a number as a colour, for each head of each layer.

    Args:
        calls: watched calls, or a matrix for each layer.
        values: a name from `regard.views.MEASURES`, the effects of heads, or a number for each
            head, [calls, heads], with NaN in grey and numbers below 0 in orange. By default each
            head is a picture of its matrix: the square root of its weights, relative to the largest
            cell of the head, so compare shapes, not strengths.
        label: label of your own numbers.
        batch: which sequence, if there are several; not for effects, which are of all sequences.
        tokens: the tokens of the text; their beginning is written below.
        figsize: width and height in inches; by default as wide as a column, or a page if needed.

    Raises:
        ImportError: matplotlib is missing.
        ValueError: there are no calls, the measure is unknown, the number of values or tokens
            doesn't fit, or batch is given for effects.

    >>> import torch, regard
    >>> x = torch.randn(1, 4, 5, 8)
    >>> figure = heads([regard.AttentionMatrix(x, x)] * 4, "entropy")
    >>> figure.axes[0].get_xlabel(), figure.axes[1].get_ylabel()
    ('head', 'entropy, nats')
    """
    if not len(calls):
        raise ValueError("there are no calls to draw")
    if isinstance(values, HeadEffects):
        if batch is not None:
            raise ValueError(f"batch must be None for effects, of all sequences, got {batch}")
        batch = 0
    matrices = [one_sequence(call, batch) for call in calls]
    text = _beginning(matrices[0], tokens)
    counts = [1 if "heads" not in each.axes else each.shape[0] for each in matrices]
    side, width = _cell(len(calls), max(counts), biggest=1.3 if values is None else 0.21)
    figure = new_figure(width, len(calls) * side + 1.5, figsize)
    ax = figure.add_subplot()
    if values is None:
        _draw_pictures(ax, matrices, side)
    else:
        found, name = _numbers(calls, values, label, counts, batch)
        _draw_numbers(ax, found, name)
    _number(ax, layer_names(calls), max(counts), side)
    room = 72 * (figure.get_figwidth() - 0.2)
    notes = (
        []
        if values is not None
        else ["colour: √ of the weight,", "relative to each head’s strongest"]
    )
    notes = [wrapped(notes, SMALL, room, between=" ")] if notes else []
    if text:
        notes.append(_cut(text, room))
    if notes:
        figure.supxlabel("\n".join(notes), size=SMALL, color=muted(ax))
    if figsize is None:
        fit_height(figure)
    return figure


def _cell(num_layers: int, num_heads: int, *, biggest: float) -> tuple[float, float]:
    """Return the side of a head and the width of the figure, in inches."""
    side = 0.0
    for width in (COLUMN, PAGE):
        side = min(biggest, (width - 2 * _MARGIN) / num_heads, (TALLEST - 1.3) / num_layers)
        if side >= 0.2 or side == (TALLEST - 1.3) / num_layers:
            return side, max(COLUMN / 2, num_heads * side + 2 * _MARGIN)
    return side, PAGE


def _draw_pictures(ax: Any, matrices: list[AttentionMatrix], side: float) -> None:
    """Draw all pictures as one image; an Axes for each would take minutes."""
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import PowerNorm

    size = max(8, min(_PICTURE, round(side * DPI)))
    found = [matrix.pool(_cells(matrix, size)).cells.cpu().numpy() for matrix in matrices]
    found = [cells if cells.ndim == 3 else cells[None] for cells in found]
    most = max(max(cells.shape[1:]) for cells in found)
    size = most * max(1, round(size / most))
    gap = 2 * max(1, size // 24)
    across = max(len(cells) for cells in found)
    image = np.full((len(found), size + gap, across, size + gap), np.nan)
    frames: list[list[tuple[float, float]]] = []
    half = 0.5 * size / (size + gap)
    corners = ((-half, -half), (half, -half), (half, half), (-half, half))
    inside = slice(gap // 2, gap // 2 + size)
    for layer, cells in enumerate(found):
        for head, picture in enumerate(cells):
            strongest = np.nanmax(picture, initial=0.0) or 1.0
            image[layer, inside, head, inside] = _spread(picture / strongest, size)
            frames.append([(head + x, layer + y) for x, y in corners])
    sides = (-0.5, across - 0.5, len(found) - 0.5, -0.5)
    flat = image.reshape(len(found) * (size + gap), -1)
    ax.imshow(flat, extent=sides, cmap=sequential(ax), norm=PowerNorm(0.5, 0.0, 1.0))
    edges: dict[str, Any] = {
        "facecolors": "none",
        "edgecolors": [muted(ax, 0.6)],
        "linewidths": 0.3,
    }
    ax.add_collection(PolyCollection(frames, **edges))
    ax.spines[:].set_visible(False)


def _cells(matrix: AttentionMatrix, size: int) -> int:
    """Return the number of cells of a picture; whole groups of rows are twice as fast."""
    tokens = max(1, *matrix.shape[-2:])
    cell = -(-tokens // size)
    if cell > GROUP // 2:
        cell = -(-cell // GROUP) * GROUP
    return -(-tokens // cell)


def _spread(picture: NDArray[Any], size: int) -> NDArray[Any]:
    """Return a picture with its cells repeated to size × size."""
    rows, columns = (np.arange(size) * count // size for count in picture.shape)
    return picture[rows][:, columns]


def _numbers(
    calls: Sequence[Any],
    values: str | HeadEffects | Tensor,
    label: str | None,
    counts: list[int],
    batch: int | None,
) -> tuple[NDArray[Any], str]:
    """Return a number for each head, [calls, heads], and its label."""
    if isinstance(values, str):
        check_choice("values", values, MEASURES)
        known = MEASURES[values]
        return measures(calls, batch)[values].numpy(), label or f"{known.name}, {known.unit}"
    if isinstance(values, HeadEffects):
        _check_layers(calls, values)
        values, label = values.effects, label or f"effect, {values.how}"
    if values.shape != (len(calls), max(counts)):
        raise ValueError(
            f"values must have the shape [calls, heads], {[len(calls), max(counts)]}, "
            f"got {list(values.shape)}"
        )
    return values.detach().to("cpu", torch.float64).numpy(), label or ""


def _check_layers(calls: Sequence[Any], effects: HeadEffects) -> None:
    """Raise ValueError if effects are those of other layers than calls, or in another order."""
    modules = [call.module for call in calls if isinstance(call, AttentionCall)]
    layers, given = list(names_of_modules(modules).values()), list(effects.labels["layers"])
    if len(layers) == len(calls) == len(given) and layers != given:
        raise ValueError(f"values must be effects of the layers {layers}, got those of {given}")


def _draw_numbers(ax: Any, numbers: NDArray[Any], label: str) -> None:
    known = numbers[np.isfinite(numbers)]
    highest, lowest = known.max(initial=0.0), 0.0
    colours = sequential(ax)
    if known.min(initial=0.0) < 0.0:
        highest = np.abs(known).max()
        colours, lowest = diverging(ax), -highest
    colours = colours.with_extremes(bad=unknown(ax))
    image = ax.imshow(numbers, cmap=colours, vmin=lowest, vmax=highest or 1.0)
    # A vertical colour bar is too short beside one or two layers.
    place = "right" if len(numbers) > 3 else "bottom"
    length = {"shrink": 1.0, "aspect": 30} if place == "right" else {"aspect": 25}
    ax.figure.colorbar(image, ax=ax, label=label, location=place, **length)


def _number(ax: Any, layers: list[str], num_heads: int, side: float) -> None:
    """Label layers at the left and heads on top, as many as fit."""
    room = 72 * side
    columns = round_places(range(num_heads), room, across=True, apart=9.0)
    rows = round_places(range(len(layers)), room, across=False, apart=9.0)
    ax.set_xticks(columns, [str(head) for head in columns])
    ax.set_yticks(rows, [layers[row] for row in rows])
    ax.xaxis.set_label_position("top")
    ax.tick_params(length=0, labeltop=True, labelbottom=False, labelrotation=0)
    ax.set(xlabel="head", ylabel="layer")
    ax.grid(visible=False)


def _beginning(matrix: AttentionMatrix, tokens: Sequence[str] | None) -> str:
    """Return the beginning of the text in one line."""
    if tokens is None:
        return ""
    if len(tokens) not in matrix.shape[-2:]:
        raise ValueError(
            f"tokens must have as many tokens as queries ({matrix.shape[-2]}), got {len(tokens)}"
        )
    return drawable(" ".join("".join(readable(tokens)).split()))


def _cut(text: str, room: float) -> str:
    """Truncate a text to a width in points."""
    shown = text
    while len(shown) > 1 and width_of(f"“{shown}…”", SMALL) > room:
        shown = shown[: int(len(shown) * 0.95)]
    return f"“{shown}”" if shown == text else f"“{shown.rstrip()}…”"
