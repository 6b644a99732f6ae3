"""A line of tokens to draw over, in points."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.views.figures.colours import muted
from regard.views.figures.fonts import width_of
from regard.views.figures.style import COLUMN, LEAST, PAGE, SMALL
from regard.views.figures.ticks import LINE, round_places

_SPACE = 5.0
"""Smallest space between tokens side by side."""

_WIDEST_SPACE = 18.0

_MARGIN = 0.1
"""Margin of a figure around its Axes, in inches."""


@dataclass(frozen=True)
class Line:
    """A line of tokens.

    Attributes:
        places: centre of each token, [tokens].
        labels: the labels, "" for none.
        size: font size.
        upright: whether tokens are rotated by 90 degrees.
        height: height of the line.
        is_text: whether tokens are written, not their positions.
    """

    places: NDArray[Any]
    labels: list[str]
    size: float
    upright: bool
    height: float
    is_text: bool

    def write(self, ax: Any, y: float = 0.0) -> None:
        """Write the tokens, centred at a height."""
        style: dict[str, Any] = {"size": self.size, "ha": "center", "va": "center"}
        style |= {"rotation": 90 if self.upright else 0, "parse_math": False}
        if not self.is_text:
            style["color"] = muted(ax)
        for x, text in zip(self.places, self.labels, strict=True):
            if text:
                ax.text(x, y, text, **style)


def line_of(labels: list[str] | None, positions: Sequence[int], room: float) -> Line:
    """Return a line of tokens that fits a width, in points.

    Args:
        labels: labels of the tokens; None to write positions only.
        positions: positions of the tokens in their text.
        room: the width.
    """
    count = len(positions)
    if labels is not None:
        widths = np.array([width_of(text, SMALL) for text in labels])
        space = (room - widths.sum()) / max(1, count)
        if space >= _SPACE:
            space = min(space, _WIDEST_SPACE)
            ends = (widths + space).cumsum()
            places = ends - (widths + space) / 2 + (room - ends[-1]) / 2
            return Line(places, labels, SMALL, False, SMALL * LINE, True)
    places = (np.arange(count) + 0.5) * room / max(1, count)
    size = min(SMALL, room / max(1, count) / LINE)
    if labels is not None and size >= LEAST:
        height = max(width_of(text, size) for text in labels) + 2.0
        return Line(places, labels, size, True, height, True)
    some = round_places(positions, room / max(1, count), across=True)
    numbers = [""] * count
    for place in some:
        numbers[place] = f"{positions[place]:,}"
    return Line(places, numbers, SMALL, False, SMALL * LINE, False)


def width_for(labels: list[str] | None, count: int) -> float:
    """Return the width of a figure for a line of tokens, in inches: a column or a page."""
    room = 72 * (COLUMN - _MARGIN)
    if labels is None or count * LINE * SMALL <= room:
        return COLUMN
    return PAGE
