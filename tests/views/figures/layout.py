"""Whether a figure can be read: no text on another, none cut off, and files that open."""

from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from matplotlib.axis import Tick
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

SLACK = 0.75
"""How many points boxes may share: they are a little larger than their letters."""


def texts(figure: Any) -> list[Text]:
    """Return all texts that can be seen, after the figure was laid out."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    unseen = {text for ax in figure.axes for text in _unseen(ax)}
    return [
        text
        for text in figure.findobj(Text)
        if text.get_text().strip() and text.get_visible() and text not in unseen
    ]


def check_layout(figure: Any) -> None:
    """Assert that no text lies on another and none is outside the figure."""
    seen = texts(figure)
    slack = SLACK * figure.dpi / 72
    boxes = [(text, text.get_window_extent()) for text in seen]
    width, height = figure.bbox.width, figure.bbox.height
    for text, box in boxes:
        inside = box.x0 >= -slack and box.y0 >= -slack
        inside = inside and box.x1 <= width + slack and box.y1 <= height + slack
        assert inside, f"{text.get_text()!r} at {box.extents} is cut off at {width} × {height}"
    for (one, a), (other, b) in combinations(boxes, 2):
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        down = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert across <= slack or down <= slack, (
            f"{one.get_text()!r} at {a.extents} lies on {other.get_text()!r} at {b.extents}"
        )


def check_files(figure: Any, folder: Path, *words: str) -> None:
    """Assert that a figure can be written as SVG, PDF and PNG, with words as text in the SVG.

    Fonts in the PDF are TrueType, which journals ask for.
    """
    for kind in ("svg", "pdf", "png"):
        path = folder / f"figure.{kind}"
        figure.savefig(path)
        assert path.stat().st_size > 1_000
    assert b"/FontFile2" in (folder / "figure.pdf").read_bytes()
    assert b"/Type3" not in (folder / "figure.pdf").read_bytes()
    root = ElementTree.parse(folder / "figure.svg").getroot()
    written = {
        "".join(node.itertext()).strip() for node in root.iter() if node.tag.endswith("text")
    }
    assert set(words) <= written


def labels(ax: Any, axis: str) -> list[str]:
    """Return the tick labels of an axis."""
    ticks = ax.get_xticklabels() if axis == "x" else ax.get_yticklabels()
    return [text.get_text() for text in ticks]


def _unseen(ax: Any) -> list[Text]:
    """Return texts of an Axes that are not drawn: of ticks beyond its limits, all if hidden."""
    if not ax.get_visible():
        return ax.findobj(Text)
    ticks = {tick for axis in (ax.xaxis, ax.yaxis) for tick in axis.findobj(Tick)}
    drawn = {tick for axis in (ax.xaxis, ax.yaxis) for tick in axis._update_ticks()}
    return [text for tick in ticks - drawn for text in (tick.label1, tick.label2)]
