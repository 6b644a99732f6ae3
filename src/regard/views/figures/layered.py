"""Attention through the layers of a model: a row of tokens for each layer."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.views.figures.arcs import strokes
from regard.views.figures.colours import directions, muted
from regard.views.figures.line import line_of
from regard.views.figures.strongest import StrongestPairs
from regard.views.figures.style import TALLEST, set_height, size_in_points
from regard.views.figures.ticks import round_places
from regard.views.figures.tokens import Labels

_PAD = 4.0
"""Space between the outer rows and their labels, in points."""


def draw_layers(
    ax: Any,
    text: tuple[Labels, Sequence[int]],
    layers: list[StrongestPairs],
    names: list[str],
    *,
    own: bool,
) -> None:
    """Draw lines from queries after a layer down to keys before it.

    Args:
        ax: an Axes.
        text: labels and positions of the tokens.
        layers: the pairs of each layer, the first layer first.
        names: names of the layers.
        own: whether the figure is ours, and its height is free.
    """
    from matplotlib.path import Path

    ax.set_yticks(range(len(layers)), names)
    ax.set_ylabel("layer")
    room, tall = size_in_points(ax)
    line = line_of(*text, room)
    beside = line.height + _PAD
    step = min(32.0, max(14.0, (72 * TALLEST - 2 * beside - 80.0) / len(layers)))
    if own:
        set_height(ax, len(layers) * step + 2 * beside)
    else:
        step = max(1.0, (tall - 2 * beside) / len(layers))
    ax.set(xlim=(0.0, room), ylim=(-beside, len(layers) * step + beside))
    some = round_places(range(len(layers)), step, across=False, apart=9.0)
    ax.set_yticks([(layer + 0.5) * step for layer in some], [names[layer] for layer in some])
    ax.tick_params(axis="y", length=0)
    for y in (-beside + line.height / 2, len(layers) * step + beside - line.height / 2):
        line.write(ax, y)
    colours = (*directions(ax), muted(ax, 0.65))
    others = [pairs.weights[pairs.queries != pairs.keys] for pairs in layers]
    strongest = float(np.concatenate(others).max(initial=0.0)) or 1.0
    paths: list[Any] = []
    shades: list[Any] = []
    for layer, pairs in enumerate(layers):
        start, end = line.places[pairs.queries], line.places[pairs.keys]
        for a, b in zip(start, end, strict=True):
            paths.append(Path([(a, (layer + 1) * step), (b, layer * step)]))
            shades.append(colours[0] if b < a else colours[1] if b > a else colours[2])
    share = np.concatenate([pairs.weights for pairs in layers]) / strongest
    fine = not line.is_text
    look: dict[str, Any] = (
        {"width": (0.1, 0.5), "opacity": (0.05, 0.4)} if fine else {"width": (0.2, 1.4)}
    )
    ax.add_collection(strokes(paths, share, shades, **look))
    if not fine:
        across, up = np.meshgrid(line.places, np.arange(len(layers) + 1) * step)
        ax.scatter(across, up, 3.0, color=[muted(ax)], lw=0, clip_on=False, zorder=3)
