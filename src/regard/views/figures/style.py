"""Sizes and fonts of figures.

Without `ax`, a figure is as wide as a column and is not registered with pyplot: nothing has to be
closed, and a notebook shows it once, as the value of a cell. For `plt.show()`, pass an Axes of
pyplot as `ax`.

Text and background follow matplotlib's settings, such as the style "dark_background"; sizes are set
while a figure is drawn, then restored. Text is never parsed as TeX: tokens have dollar signs.
"""

from collections.abc import Generator
from contextlib import contextmanager
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
"""Largest height on a page with a caption, in inches."""

DPI = 200
"""Dots per inch of figures, and of images in their PDF and SVG files."""

SMALL = 7.0
"""Font size of tokens and ticks, in points."""

LEAST = 5.0
"""Smallest font size, in points."""

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
    """Draw with our sizes, then restore matplotlib's settings.

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
        figsize: both, if given by the user.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from regard.views.figures.text_figure import TextFigure

    figure = TextFigure(figsize=figsize or (width, height), dpi=DPI, layout="compressed")
    FigureCanvasAgg(figure)
    return figure


def one_axes(
    ax: Any, width: float, height: float, figsize: tuple[float, float] | None = None
) -> "tuple[matplotlib.figure.Figure, matplotlib.axes.Axes]":
    """Return the Axes to draw in and its figure: the user's, or new ones.

    Raises:
        ValueError: both ax and figsize are given.
    """
    if ax is None:
        figure = new_figure(width, height, figsize)
        return figure, figure.add_subplot()
    if figsize is not None:
        raise ValueError("ax and figsize can't both be given: ax belongs to a figure already")
    return ax.figure.figure, ax


def size_in_points(ax: Any) -> tuple[float, float]:
    """Return the final width and height of an Axes, in points."""
    figure = ax.figure.figure
    _lay_out(figure)
    ax.apply_aspect()
    box = ax.get_window_extent()
    return box.width * 72 / figure.dpi, box.height * 72 / figure.dpi


def set_height(ax: Any, height: float) -> None:
    """Set the height of a figure so that its only Axes has a height in points."""
    figure = ax.figure.figure
    more = height - size_in_points(ax)[1]
    figure.set_figheight(figure.get_figheight() + more / 72)


def fit_height(figure: "matplotlib.figure.Figure", *, padding: float = 0.04) -> None:
    """Trim the height of a figure to its content.

    Args:
        figure: the figure.
        padding: space above and below, in inches.
    """
    for _ in range(2):
        _lay_out(figure)
        box = figure.get_tightbbox()
        figure.set_size_inches(figure.get_figwidth(), box.height + 2 * padding)


def _lay_out(figure: "matplotlib.figure.Figure") -> None:
    """Compute the layout of a figure; a third of the work of drawing it."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
