"""The steps of attention for one token, as a figure."""

from typing import TYPE_CHECKING

from regard.errors import check_positive
from regard.views.explain.explanation import Explanation, vector
from regard.views.figures.fonts import drawable
from regard.views.figures.style import COLUMN, drawing, new_figure
from regard.views.pieces import label

if TYPE_CHECKING:
    import matplotlib.figure

_ROW = 0.17
"""The height of a row, in inches."""


@drawing()
def steps(
    explanation: Explanation, *, top: int = 12, figsize: tuple[float, float] | None = None
) -> "matplotlib.figure.Figure":
    """Draw scores, scaled scores and weights of one token side by side, a row for each key.

    Args:
        explanation: what to draw.
        top: how many keys, the strongest ones.
        figsize: width and height in inches.
    """
    check_positive(top=top)
    places = explanation.strongest(top)
    if not places:
        raise ValueError("there is nothing to draw: the token may look at no other")
    numbers_of = {
        "query · key": explanation.scores,
        f"× {explanation.scale:.3f}": explanation.scaled,
        "softmax": explanation.weights,
    }
    drawn = new_figure(COLUMN, 0.75 + _ROW * len(places), figsize)
    panels = drawn.subplots(1, len(numbers_of), sharey=True)
    for panel, (name, numbers) in zip(panels, numbers_of.items(), strict=True):
        chosen = [numbers[place].item() for place in places]
        low, high = min(0.0, *chosen), max(0.0, *chosen)
        is_last = panel is panels[-1]
        panel.barh(range(len(places)), chosen, height=0.7, color="C0" if is_last else "C7")
        panel.set_title(name)
        # Room for the numbers beside the bars.
        room = 0.6 * (high - low or 1.0)
        panel.set_xlim(low - (room if low < 0.0 else 0.0), high + (room if high > 0.0 else 0.0))
        for row, number in enumerate(chosen):
            side = "left" if number >= 0.0 else "right"
            shown = f" {number:.3f} "
            panel.text(number, row, shown, va="center", ha=side, fontsize="x-small")
        panel.set_xticks([])
        panel.spines[["top", "right", "bottom"]].set_visible(False)
        panel.tick_params(axis="y", length=0)
    names = [drawable(label(explanation.tokens[place])) for place in places]
    panels[0].set_yticks(range(len(places)), names)
    panels[0].invert_yaxis()
    drawn.suptitle(f"Where “{drawable(label(explanation.asking))}” looks")
    if explanation.output is not None:
        drawn.supxlabel(f"Σ weight · value = {vector(explanation.output)}")
    return drawn
