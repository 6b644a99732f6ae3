"""Tick labels: tokens if they fit, round positions otherwise."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from typing import Any, Literal

from regard.views.figures.fonts import width_of
from regard.views.figures.style import LEAST, SMALL, size_in_points
from regard.views.figures.tokens import Labels

LINE = 1.22
"""Smallest distance between lines of text, in font sizes."""


@dataclass(frozen=True)
class Ticks:
    """The tick labels of one axis of some Axes.

    Attributes:
        panels: Axes of one size, at least one, with row or column i at i.
        axis: which of their axes.
        labels: labels of rows or columns, if any.
        places: their positions in the text.
    """

    panels: Sequence[Any]
    axis: Literal["x", "y"]
    labels: Labels
    places: Sequence[int]

    def room(self, size: tuple[float, float]) -> float:
        """Return the distance between two labels on an Axes of a size, in points."""
        return size[self.axis == "y"] / max(1, len(self.places))

    def fitting(self, size: tuple[float, float]) -> float:
        """Return the largest font size of labels on an Axes of a size."""
        return floor(10 * self.room(size) / LINE) / 10

    def put(self, size: float, room: float) -> None:
        """Write the labels at a font size; round positions if there are none or it is too small."""
        if self.labels is None or size < LEAST:
            at = round_places(self.places, room, across=self.axis == "x")
            self._put(at, [f"{self.places[i]:,}" for i in at], SMALL, rotation=0)
            if self.labels is not None:
                self._mark_as_usual()
            return
        wide = self.axis == "x" and any(
            width_of(text, size) + size / 2 > room for text in self.labels
        )
        self._put(range(len(self.labels)), self.labels, size, rotation=90 if wide else 0)
        self._mark(0, 3)

    def _mark_as_usual(self) -> None:
        """Undo what tokens that were tried before have set."""
        import matplotlib

        settings: Any = matplotlib.rcParams
        usual = f"{self.axis}tick.major"
        self._mark(settings[f"{usual}.size"], settings[f"{usual}.pad"])

    def _mark(self, length: float, pad: float) -> None:
        """Set the length of tick marks, and the distance of their labels, in points."""
        for ax in self.panels:
            ax.tick_params(axis=self.axis, length=length, pad=pad)

    def _put(self, at: Sequence[int], labels: list[str], size: float, *, rotation: int) -> None:
        for ax in self.panels:
            put = ax.set_xticks if self.axis == "x" else ax.set_yticks
            put(at, labels, fontsize=size, rotation=rotation, parse_math=False, usetex=False)


def tick(rows: Ticks, columns: Ticks) -> tuple[float, float]:
    """Label the rows and columns of some Axes with as much as fits.

    Labels shrink their Axes, so smaller ones may be needed afterwards.

    Returns:
        Width and height of an Axes with its labels, in points.
    """
    both = rows, columns
    whole = _points(rows.panels[0].figure.figure)
    # Thousands of labels take minutes: not even tried if they would not fit on the whole figure.
    sizes = [SMALL if ticks.fitting(whole) >= LEAST else 0.0 for ticks in both]
    size = (0.0, 0.0)
    for attempt in range(5):
        size = size_in_points(rows.panels[0])
        fitting = [ticks.fitting(size) for ticks in both]
        if attempt and all(a >= b for a, b in zip(fitting, sizes, strict=True)):
            break
        sizes = [
            _smaller(now, fits) if attempt < 4 else 0.0
            for now, fits in zip(sizes, fitting, strict=True)
        ]
        for ticks, each in zip(both, sizes, strict=True):
            ticks.put(each, ticks.room(size))
    return size


def _points(figure: Any) -> tuple[float, float]:
    """Return the width and height of a figure, in points."""
    width, height = figure.get_size_inches()
    return 72 * width, 72 * height


def _smaller(now: float, fitting: float) -> float:
    """Return the next font size to try; smaller labels leave more room than those at hand."""
    return LEAST if fitting < LEAST < now else min(now, fitting)


def round_places(
    places: Sequence[int], room: float, *, across: bool, apart: float = 14.0
) -> list[int]:
    """Return the rows or columns with round positions, as many as can be labelled.

    Args:
        places: the position of each row or column.
        room: distance between them, in points.
        across: whether labels are side by side.
        apart: smallest distance between labels, in points.
    """
    if not places:
        return []
    widest = width_of(f"{max(places):,}", SMALL)
    need = max(apart, 1.5 * widest if across else LINE * SMALL) / room
    steps = (unit * 10**power for power in range(12) for unit in (1, 2, 5))
    every = next(step for step in steps if step >= need)
    together = all(place == places[0] + i for i, place in enumerate(places))
    first = places[0] if together else 0
    found = [i for i in range(len(places)) if (i + first) % every == 0] or [0]
    # Only the first is round: label the last too.
    if found == [0] and room * (len(places) - 1) >= max(apart, 1.2 * widest):
        found.append(len(places) - 1)
    return found
