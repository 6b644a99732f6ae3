"""The steps of attention for one token, as a figure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.calls.tokens import label
from regard.errors import check_positive
from regard.views.explain.explanation import Explanation, vector
from regard.views.figures.fonts import drawable, width_of, wrapped
from regard.views.figures.style import COLUMN, SMALL, drawing, new_figure, size_in_points
from regard.views.figures.ticks import LINE
from regard.views.numbers import in_figures

if TYPE_CHECKING:
    import matplotlib.figure

_ROW = 0.17
"""The height of a row, in inches."""

_SMALLER = 5.5
"""Font size of the numbers beside the bars."""


@drawing()
def steps(
    explanation: Explanation, *, top: int = 12, figsize: tuple[float, float] | None = None
) -> "matplotlib.figure.Figure":
    """Draw scores, scaled scores and weights of one token side by side, a row for each key.

    If only the weights are known, only these are drawn.

    Args:
        explanation: what to draw.
        top: how many keys, the strongest ones.
        figsize: width and height in inches.

    Raises:
        ImportError: matplotlib is missing.
        ValueError: the query has no allowed keys, or the figure is too low for its rows.
    """
    check_positive(top=top)
    places = explanation.strongest(top)
    if not places:
        raise ValueError("there is nothing to draw: the query has no allowed keys")
    numbers_of = {"softmax": explanation.weights}
    if explanation.scores is not None and explanation.scaled is not None:
        scaled = f"× {explanation.scale:.3f}"
        before = {"query · key": explanation.scores, scaled: explanation.scaled}
        numbers_of = before | numbers_of
    drawn = new_figure(COLUMN, 0.75 + _ROW * len(places), figsize)
    panels = drawn.subplots(1, len(numbers_of), sharey=True, squeeze=False)[0]
    for panel, name in zip(panels, numbers_of, strict=True):
        panel.set_title(name)
        panel.set_xticks([])
        panel.spines[:].set_visible(False)
        panel.tick_params(axis="y", length=0)
    names = [drawable(label(explanation.tokens[place])) for place in places]
    panels[0].set_yticks(range(len(places)), names)
    panels[0].invert_yaxis()
    if explanation.asking:
        drawn.suptitle(f"Where “{drawable(label(explanation.asking))}” looks")
    if explanation.output is not None:
        parts = ["Σ weight · value =", vector(explanation.output)]
        drawn.supxlabel(wrapped(parts, 8.0, 72 * (drawn.get_figwidth() - 0.2), between=" "))
    _check_rows(panels[0], len(places))
    # Bars get the space that labels and titles leave.
    for panel, numbers in zip(panels, numbers_of.values(), strict=True):
        is_last = panel is panels[-1]
        _bars(panel, [numbers[place].item() for place in places], "C0" if is_last else "C7")
    return drawn


def _check_rows(panel: Any, num_rows: int) -> None:
    """Raise ValueError if rows are lower than their labels."""
    height = size_in_points(panel)[1]
    room = max(0, int(height / (LINE * SMALL)))
    if num_rows > room:
        raise ValueError(f"figsize has room for {room} keys, got {num_rows}: pass a smaller top=")


def _bars(panel: Any, numbers: Sequence[float], colour: str) -> None:
    """Draw numbers as bars to both sides of 0, each with its number at its right."""
    panel.barh(range(len(numbers)), numbers, height=0.7, color=colour)
    panel.axvline(0.0, color=panel.spines["left"].get_edgecolor(), linewidth=0.6)
    shown = [f" {_shown(number)}" for number in numbers]
    for row, (number, text) in enumerate(zip(numbers, shown, strict=True)):
        panel.text(max(0.0, number), row, text, va="center", fontsize=_SMALLER)
    low, high = min(0.0, *numbers), max(0.0, *numbers)
    width, beside = size_in_points(panel)[0], max(width_of(text, _SMALLER) for text in shown)
    unit = (high - low or 1.0) / max(0.2 * width, width - beside)
    panel.set_xlim(low, high + beside * unit)


def _shown(number: float) -> str:
    """Return a number with a few significant digits."""
    if abs(number) >= 1e4:
        return f"{number:.3g}"
    before = len(str(int(abs(number))))
    return in_figures(number, digits=4 - before)
