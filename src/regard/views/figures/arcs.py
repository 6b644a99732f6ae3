"""Curves between tokens, as paths of matplotlib."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def arc(start: float, end: float, foot: float, height: float) -> Any:
    """Return an arc between two places that rises, or falls, from a foot by a height."""
    from matplotlib.path import Path

    # The control points are higher, so that the curve itself reaches the height.
    peak = foot + height * 4 / 3
    points = [(start, foot), (start, peak), (end, peak), (end, foot)]
    return Path(points, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])


def bracket(start: float, end: float, foot: float, height: float, radius: float = 4.0) -> Any:
    """Return a line up, across and down again, with round corners."""
    from matplotlib.path import Path

    left, right, peak = min(start, end), max(start, end), foot + height
    radius = min(radius, (right - left) / 2, height)
    points = [(left, foot), (left, peak - radius), (left, peak), (left + radius, peak)]
    points += [(right - radius, peak), (right, peak), (right, peak - radius), (right, foot)]
    line, curve = Path.LINETO, Path.CURVE3
    return Path(points, [Path.MOVETO, line, curve, curve, line, curve, curve, line])


def strokes(
    paths: list[Any],
    weights: NDArray[Any],
    colours: list[Any],
    *,
    width: tuple[float, float] = (0.4, 2.0),
    opacity: tuple[float, float] = (0.2, 0.95),
) -> Any:
    """Return curves as one collection, wider and more opaque with their weight.

    Args:
        paths: the curves.
        weights: from 0 to 1, [paths].
        colours: one for each.
        width: line width at weight 0 and 1, in points.
        opacity: opacity at weight 0 and 1.
    """
    from matplotlib.collections import PathCollection
    from matplotlib.colors import to_rgb

    strength = np.clip(weights, 0.0, 1.0)
    shades = opacity[0] + strength * (opacity[1] - opacity[0])
    return PathCollection(
        paths,
        facecolors="none",
        edgecolors=[(*to_rgb(c), a) for c, a in zip(colours, shades, strict=True)],
        linewidths=width[0] + strength * (width[1] - width[0]),
        capstyle="butt",
        clip_on=False,
    )


def bare(ax: Any) -> None:
    """Hide the spines and ticks of an Axes."""
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    ax.grid(visible=False)
