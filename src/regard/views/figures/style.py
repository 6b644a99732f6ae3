"""How figures look: their sizes and fonts, without a setting that stays changed.

A figure that is not given an Axes is as wide as a column of a paper and stands for itself: pyplot
doesn't know of it, so nothing has to be closed, and a notebook shows it once, as the value of a
cell. To have a figure of pyplot, with `plt.show()`, hand over one of its Axes as `ax`.

Text and background have the colours of matplotlib's settings, so that styles such as
"dark_background" hold. Sizes are ours while a figure is drawn. Text is never read as TeX: tokens
have dollar signs.
"""

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

from regard.views.figures.fonts import families

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

COLUMN = 3.4
"""The width of a column of a paper, in inches."""

PAGE = 7.0
"""The width of a page of two columns, in inches."""

TALLEST = 8.6
"""What fits on a page with its caption, in inches."""

DPI = 200
"""Dots per inch of our figures, and of the pictures in their PDF and SVG files."""

SMALL = 7.0
"""The size of tokens and ticks, in points."""

LEAST = 5.0
"""The smallest size of anything that is to be read, in points."""

_SETTINGS: dict[str, Any] = {
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "figure.titlesize": 8.0,
    "figure.labelsize": 8.0,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "axes.titlepad": 4.0,
    "axes.labelpad": 3.0,
    "axes.titleweight": "normal",
    "axes.labelweight": "normal",
    "axes.linewidth": 0.6,
    "axes.grid": False,
    **{f"{axis}tick.major.width": 0.6 for axis in "xy"},
    **{f"{axis}tick.major.{what}": 2.0 for axis in "xy" for what in ("size", "pad")},
    "text.usetex": False,
    "text.parse_math": False,
}


@contextmanager
def drawing() -> Generator[None]:
    """Draw with our sizes, and leave matplotlib as it was.

    Raises:
        ImportError: matplotlib is missing.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError('figures need matplotlib: pip install "regard[plot]"') from error
    settings: Any = {**_SETTINGS, "font.family": families()}
    with matplotlib.rc_context(settings):
        yield


def new_figure(
    width: float, height: float, figsize: tuple[float, float] | None = None
) -> "matplotlib.figure.Figure":
    """Return an empty figure.

    Args:
        width: in inches.
        height: in inches.
        figsize: both, if the user has chosen them.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=figsize or (width, height), dpi=DPI, layout="compressed")
    FigureCanvasAgg(figure)
    # Notebooks ask for it. They know pyplot's figures without, but not figures that are its own.
    setattr(figure, "_repr_png_", partial(_as_png, figure))  # noqa: B010
    return figure


def one_axes(
    ax: Any, width: float, height: float, figsize: tuple[float, float] | None = None
) -> "tuple[matplotlib.figure.Figure, matplotlib.axes.Axes]":
    """Return the Axes to draw in and its figure: the user's, or new ones.

    Raises:
        ValueError: figsize was given for a figure that is there already.
    """
    if ax is None:
        figure = new_figure(width, height, figsize)
        return figure, figure.add_subplot()
    if figsize is not None:
        raise ValueError(
            "figsize is the size of a new figure, and ax belongs to one: leave one out"
        )
    return ax.figure.figure, ax


def size_in_points(ax: Any) -> tuple[float, float]:
    """Return width and height of an Axes as it will be drawn, in points."""
    figure = ax.figure.figure
    _lay_out(figure)
    ax.apply_aspect()
    box = ax.get_window_extent()
    return box.width * 72 / figure.dpi, box.height * 72 / figure.dpi


def set_height(ax: Any, height: float) -> None:
    """Make a figure as high as its only Axes must be, in points."""
    figure = ax.figure.figure
    more = height - size_in_points(ax)[1]
    figure.set_figheight(figure.get_figheight() + more / 72)


def fit_height(figure: "matplotlib.figure.Figure", *, padding: float = 0.04) -> None:
    """Cut off what a figure has too much in height, its width being what it is.

    Args:
        figure: whose layout says how large its parts are.
        padding: what to leave above and below, in inches.
    """
    for _ in range(2):
        _lay_out(figure)
        box = figure.get_tightbbox()
        figure.set_size_inches(figure.get_figwidth(), box.height + 2 * padding)


def _lay_out(figure: "matplotlib.figure.Figure") -> None:
    """Give all parts of a figure their place; a third of the work of drawing it."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)


def _as_png(figure: "matplotlib.figure.Figure") -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
