"""Colours for light and dark backgrounds, greyscale print and colour-blind readers."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.views.diverging import DARK, LIGHT

if TYPE_CHECKING:
    import matplotlib.colors

Colour = tuple[float, float, float]

SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's colours that are visible on white and on black."""

MARKERS = "os^Dv*"
"""Line styles, for greyscale print."""


def background(ax: Any) -> Colour:
    """Return the background colour of an Axes."""
    from matplotlib.colors import to_rgba

    for part in (ax, ax.figure, ax.figure.figure):
        *colour, opacity = to_rgba(part.get_facecolor())
        if opacity:
            return colour[0], colour[1], colour[2]
    return 1.0, 1.0, 1.0


def foreground() -> Colour:
    """Return the colour of text."""
    import matplotlib
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(matplotlib.rcParams["text.color"])
    return red, green, blue


def between(first: Colour, second: Colour, share: float) -> Colour:
    """Interpolate two colours."""
    red, green, blue = (a + share * (b - a) for a, b in zip(first, second, strict=True))
    return red, green, blue


def muted(ax: Any, share: float = 0.35) -> Colour:
    """Return the colour of text, blended with a share of the background."""
    return between(foreground(), background(ax), share)


def is_dark(ax: Any) -> bool:
    """Return whether an Axes has a dark background."""
    return float(np.dot(background(ax), (0.299, 0.587, 0.114))) < 0.5


def sequential(ax: Any, *, lowest: float = 0.0) -> "matplotlib.colors.Colormap":
    """Return a colormap for weights that starts at the background colour.

    Args:
        ax: the Axes.
        lowest: where to begin, from 0 to 1; above 0, the lowest weight differs from the background.
    """
    import matplotlib
    from matplotlib.colors import LinearSegmentedColormap

    # A single hue of varying lightness.
    steps: NDArray[Any] = np.linspace(0.12, 1.0, 12)
    blues = matplotlib.colormaps["Blues"](1.0 - steps if is_dark(ax) else steps)[:, :3]
    ground = background(ax)
    ramp = LinearSegmentedColormap.from_list("regard", [ground, *blues.tolist()])
    if lowest:
        ramp = LinearSegmentedColormap.from_list("regard", ramp(np.linspace(lowest, 1.0, 24)))
    return ramp.with_extremes(bad=(*ground, 0.0))


def diverging(ax: Any) -> "matplotlib.colors.Colormap":
    """Return a colormap for signed numbers with the background colour in the middle."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    colours = [to_rgb(colour) for colour in (DARK if is_dark(ax) else LIGHT)]
    colours[len(colours) // 2] = background(ax)
    ramp = LinearSegmentedColormap.from_list("regard-signed", colours)
    return ramp.with_extremes(bad=(*background(ax), 0.0))


def unknown(ax: Any) -> Colour:
    """Return the colour of NaN."""
    return between(background(ax), foreground(), 0.25)


def directions(ax: Any) -> tuple[str, str]:
    """Return the colours of attention to earlier and to later tokens."""
    return ("#56b4e9", "#e69f00") if is_dark(ax) else ("#0072b2", "#d55e00")
