"""Attention as arcs over the text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.calls.call import AttentionCall
from regard.calls.choose import head_or_mean
from regard.matrix import AttentionMatrix
from regard.views.figures.arcs import arc, bare, strokes
from regard.views.figures.colours import directions, muted
from regard.views.figures.fonts import wrapped
from regard.views.figures.layered import draw_layers
from regard.views.figures.line import line_of, width_for
from regard.views.figures.names import layer_names, title_of
from regard.views.figures.strongest import StrongestPairs, strongest_pairs
from regard.views.figures.style import SMALL, drawing, one_axes, set_height, size_in_points
from regard.views.figures.tokens import Labels, positions_of, row_and_column_labels

if TYPE_CHECKING:
    import matplotlib.figure

LABELLED = 60
"""Largest number of tokens that are written out."""

MOST = 600
"""Largest number of lines of a layer."""

_FOOT = 4.0
"""The space between a token and the arcs that start from it, in points."""


@dataclass(frozen=True)
class Choice:
    """Which pairs a graph shows.

    Attributes:
        threshold: the smallest weight.
        top: largest number of pairs per token; None for all.
    """

    threshold: float
    top: int | None

    @classmethod
    def of(cls, threshold: float | None, top: int | None, num_tokens: int) -> "Choice":
        """Return the choice, with defaults that suit the number of tokens."""
        usual = 0.05 if num_tokens <= LABELLED else 0.3
        return cls(usual if threshold is None else threshold, top)

    def pairs(self, matrix: AttentionMatrix) -> StrongestPairs:
        """Return the pairs of a matrix to show."""
        return strongest_pairs(matrix, threshold=self.threshold, top=self.top, most=MOST)

    def notes(self, strongest: float, shown: int, total: int) -> list[str]:
        """Describe the choice in words."""
        found = [f"weights of {self.threshold:g} to {strongest:.2g}"] if shown else []
        found = found or [f"no weight reaches {self.threshold:g}"]
        if self.top is not None:
            found.append(f"at most {self.top} for each token")
        if total > shown:
            found.append(f"the strongest {shown:,} of {total:,}")
        return found


@drawing()
def graph(
    what: AttentionMatrix | AttentionCall | Sequence[AttentionMatrix | AttentionCall],
    tokens: Sequence[str] | None = None,
    *,
    head: int | None = None,
    threshold: float | None = None,
    top: int | None = 3,
    batch: int | None = None,
    ax: Any = None,
    figsize: tuple[float, float] | None = None,
) -> "matplotlib.figure.Figure":
    """Draw attention as arcs over the text, or as lines between the layers of a model.

    Arcs above the text go from a query on the right to an earlier key; arcs below, to a later key.
    A dot is a token that attends to itself. Width and opacity are relative to the largest weight
    between two tokens.

    Several calls are drawn as layers, the first at the bottom: lines go down from queries to keys.

    Args:
        what: a watched call, an attention matrix, or several of either.
        tokens: such as `tokenizer.convert_ids_to_tokens(ids)`. Up to 60 are written under the arcs;
            otherwise positions are.
        head: which head; the mean of all heads by default.
        threshold: the smallest weight to draw; by default 0.05, and 0.3 above 60 tokens.
        top: how many of the strongest keys of each token to draw; None for all.
        batch: which sequence, if there are several.
        ax: a matplotlib Axes to draw in.
        figsize: width and height in inches; by default as wide as a column, or a page if needed.

    Raises:
        ImportError: matplotlib is missing.
        ValueError: tokens don't fit the matrix, or the call is cross-attention.

    >>> import torch, regard
    >>> x = torch.randn(1, 4, 3, 8)
    >>> figure = graph(regard.AttentionMatrix(x, x), ["a", "b", "c"], head=2, top=1)
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['a', 'b', 'c']
    """
    several = isinstance(what, Sequence)
    calls = list(what) if isinstance(what, Sequence) else [what]
    if not calls:
        raise ValueError("there are no calls to draw")
    for call in calls:
        if isinstance(call, AttentionCall) and call.kind == "cross":
            raise ValueError(
                "a graph needs self-attention, and this call is cross-attention: draw a heatmap, "
                "with key_tokens"
            )
    matrices = [head_or_mean(call, head, batch) for call in calls]
    labels = row_and_column_labels(matrices[0], tokens)[1]
    places = positions_of(matrices[0], "keys")
    if len(places) > LABELLED:
        labels = None
    choice = Choice.of(threshold, top, len(places))
    found = [choice.pairs(matrix) for matrix in matrices]
    own = ax is None and figsize is None
    figure, ax = one_axes(ax, width_for(labels, len(places)), 3.0, figsize)
    bare(ax)
    strongest = max((float(pairs.weights[0]) for pairs in found if len(pairs.weights)), default=0.0)
    shown, total = (sum(map(count, found)) for count in (_shown, _total))
    notes = choice.notes(strongest, shown, total)
    title = title_of(None if several else what, matrices[0])
    ax.set_title(title, loc="left")
    if several:
        draw_layers(ax, (labels, places), found, layer_names(calls), own=own)
    else:
        notes += draw_arcs(ax, (labels, places), found[0], own=own)
    ax.set_xlabel(wrapped(notes, SMALL, size_in_points(ax)[0]), size=SMALL, color=muted(ax))
    return figure


def draw_arcs(
    ax: Any, text: tuple[Labels, Sequence[int]], pairs: StrongestPairs, *, own: bool
) -> list[str]:
    """Draw pairs as arcs over a text, and return notes for the caption.

    Args:
        ax: an Axes.
        text: labels and positions of the tokens.
        pairs: what to draw.
        own: whether the figure is ours, and its height is free.
    """
    room, tall = size_in_points(ax)
    line = line_of(*text, room)
    start, end = line.places[pairs.queries], line.places[pairs.keys]
    reach = np.abs(start - end)
    longest = float(reach.max(initial=1.0)) or 1.0
    itself, back = reach == 0.0, end < start
    paired = not itself.all()
    ahead = ~back & ~itself
    up, down = (float(reach[side].max(initial=0.0)) for side in (back, ahead))
    foot = line.height / 2 + _FOOT
    full = min(110.0, max(min(36.0, 2.0 * longest), 0.34 * longest))
    above, below = (_rise(each, longest) for each in (up, down))
    above = max(above, 0.12 if itself.any() or not below else 0.0)
    if not own:
        full = max(1.0, (tall - 2 * foot) / (above + below))
    bottom, top = -foot - full * below, foot + full * above
    if own:
        set_height(ax, top - bottom)
    ax.set(xlim=(0.0, room), ylim=(bottom, top))
    line.write(ax)
    colours = directions(ax)
    # In a causal model the first token attends to itself with weight 1; don't scale by that.
    share = pairs.weights / pairs.weights[~itself].max(initial=1e-30) if paired else pairs.weights
    paths = [
        arc(
            a, b, foot if b < a else -foot, full * _rise(abs(a - b), longest) * (1 if b < a else -1)
        )
        for a, b in zip(start[~itself], end[~itself], strict=True)
    ]
    fine = len(line.places) > LABELLED
    # More lines are more transparent.
    densest = min(0.6, max(0.15, 80 / max(1, len(paths))))
    look: dict[str, Any] = {"width": (0.2, 0.8), "opacity": (0.1, densest)} if fine else {}
    shades = [colours[0] if looks_back else colours[1] for looks_back in back[~itself]]
    ax.add_collection(strokes(paths, share[~itself], shades, **look))
    if itself.any():
        area = (2.0 if fine else 14.0) * pairs.weights[itself]
        ax.scatter(
            start[itself], np.full(itself.sum(), foot), area, color=muted(ax), lw=0, clip_on=False
        )
    said = ["above: looks back"] if back.any() and ahead.any() else []
    said += ["below: looks ahead"] if ahead.any() else []
    return said + (["dots: looks at itself"] if itself.any() else [])


def _rise(distance: float, longest: float) -> float:
    """Return the height of an arc, from 0 to 1, sublinear in the distance."""
    return (distance / longest) ** 0.7


def _shown(pairs: StrongestPairs) -> int:
    return len(pairs.weights)


def _total(pairs: StrongestPairs) -> int:
    return pairs.total
