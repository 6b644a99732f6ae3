"""The maximum spanning tree of a head over a sentence."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.calls.call import AttentionCall
from regard.calls.choose import head_or_mean
from regard.calls.tokens import label, readable
from regard.matrix import AttentionMatrix
from regard.views.figures.arcs import bare, bracket, strokes
from regard.views.figures.colours import background, directions, muted
from regard.views.figures.fonts import drawable, width_of, wrapped
from regard.views.figures.line import line_of, width_for
from regard.views.figures.names import title_of
from regard.views.figures.spanning import Link, between_words, is_special, spanning_tree
from regard.views.figures.style import SMALL, drawing, one_axes, set_height, size_in_points
from regard.views.numbers import in_figures

if TYPE_CHECKING:
    import matplotlib.figure

LONGEST = 100
"""Largest number of tokens."""

_NUMBER = 5.5
"""Font size of the weights, in points."""

_LEVEL = 10.0
"""Distance between levels of brackets, in points."""

_FOOT = 3.0


@drawing()
def tree(
    what: AttentionMatrix | AttentionCall,
    tokens: Sequence[str],
    *,
    head: int | None = None,
    batch: int | None = None,
    words: Sequence[int | None] | None = None,
    special: bool = False,
    ax: Any = None,
    figsize: tuple[float, float] | None = None,
) -> "matplotlib.figure.Figure":
    """Draw the maximum spanning tree of a head over a sentence.

    The tree is that of the undirected weights max(A, Aᵀ). It has no root.

    Args:
        what: a watched call, or an attention matrix.
        tokens: such as `tokenizer.convert_ids_to_tokens(ids)`.
        head: which head; the mean of all heads by default.
        batch: which sequence, if there are several.
        words: the word of each token, such as `encoding.word_ids()`, for a tree of words: weights
            are summed over the tokens of a key and averaged over those of a query.
        special: whether to keep special tokens such as `[CLS]`, which get much of the weight.
        ax: a matplotlib Axes to draw in.
        figsize: width and height in inches; by default as wide as a column, or a page if needed.

    Raises:
        ImportError: matplotlib or networkx is missing.
        ValueError: the number of tokens doesn't fit, or is above 100.

    >>> import torch, regard
    >>> weights = torch.tensor([[0.1, 0.9, 0.0], [0.2, 0.3, 0.5], [0.4, 0.0, 0.6]])
    >>> figure = tree(regard.AttentionMatrix.from_weights(weights[None, None]), ["a", "b", "c"])
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['a', 'b', 'c', '0.90', '0.50']
    """
    matrix = head_or_mean(what, head, batch)
    _check(matrix, tokens, words)
    weights = matrix.dense() if "heads" not in matrix.axes else matrix.dense().mean(dim=0)
    pieces = readable(tokens)
    if words is None:
        kept = [place for place, token in enumerate(tokens) if special or not is_special(token)]
        names = [pieces[place] for place in kept]
        weights = weights[kept][:, kept]
    else:
        numbers = dict.fromkeys(word for word in words if word is not None)
        names = [
            "".join(piece for piece, word in zip(pieces, words, strict=True) if word == number)
            for number in numbers
        ]
        weights = between_words(weights, words)
    labels = [drawable(label(name)) for name in names]
    links = spanning_tree(weights)
    own = ax is None and figsize is None
    figure, ax = one_axes(ax, width_for(labels, len(labels)), 2.0, figsize)
    bare(ax)
    ax.set_title(title_of(what, matrix), loc="left")
    notes = ["maximum spanning tree", "of max(A, Aᵀ)"]
    _draw(ax, labels, links, own=own)
    room = size_in_points(ax)[0]
    ax.set_xlabel(wrapped(notes, SMALL, room, between=" "), size=SMALL, color=muted(ax), labelpad=5)
    return figure


def _check(
    matrix: AttentionMatrix, tokens: Sequence[str], words: Sequence[int | None] | None
) -> None:
    queries, keys = matrix.shape[-2:]
    if queries != keys:
        raise ValueError(
            f"a tree needs as many queries as keys, got {queries} and {keys}: draw a "
            "heatmap, with key_tokens"
        )
    if len(tokens) != keys:
        raise ValueError(f"tokens must have as many tokens as keys ({keys}), got {len(tokens)}")
    if words is not None and len(words) != keys:
        raise ValueError(f"words must have one entry per token ({keys}), got {len(words)}")
    if keys > LONGEST:
        raise ValueError(
            f"a tree shows up to {LONGEST} tokens, got {keys}: take a slice, such as "
            "matrix[0, 3, :40, :40], or draw a graph"
        )


def _draw(ax: Any, labels: list[str], links: list[Link], *, own: bool) -> None:
    room, tall = size_in_points(ax)
    line = line_of(labels, range(len(labels)), room)
    levels = _levels(links, line.places)
    highest = max(levels, default=1)
    foot = line.height / 2 + _FOOT
    step = _LEVEL
    if own:
        set_height(ax, line.height + _FOOT + (highest + 0.6) * step)
    else:
        step = max(1.0, (tall - line.height - _FOOT) / (highest + 0.6))
    ax.set(xlim=(0.0, room), ylim=(-line.height / 2, foot + (highest + 0.6) * step))
    line.write(ax)
    colour = directions(ax)[0]
    # Links to the left and to the right of a token are apart.
    beside = min(1.6, 0.16 * room / max(1, len(labels)))
    ends = [(line.places[one.first] + beside, line.places[one.second] - beside) for one in links]
    paths = [bracket(a, b, foot, step * up) for (a, b), up in zip(ends, levels, strict=True)]
    share = np.array([one.weight for one in links])
    share = share / share.max(initial=1e-30)
    ax.add_collection(
        strokes(paths, share, [colour] * len(paths), width=(0.5, 1.6), opacity=(0.4, 1.0))
    )
    for (a, b), up, one in zip(ends, levels, links, strict=True):
        ground = {"facecolor": background(ax), "edgecolor": "none", "pad": 0.4}
        where = {"ha": "center", "va": "center", "size": _NUMBER, "bbox": ground}
        ax.text((a + b) / 2, foot + step * up, in_figures(one.weight, digits=2), **where)


def _levels(links: list[Link], places: NDArray[Any]) -> list[int]:
    """Return the level of each link, such that lines and numbers don't overlap."""
    room = width_of("0.00", _NUMBER) + 3.0
    levels = [0] * len(links)
    sides: list[list[tuple[float, float]]] = []
    order = sorted(range(len(links)), key=lambda at: (links[at].second - links[at].first, at))
    for at in order:
        first, second, _ = links[at]
        left, right = float(places[first]), float(places[second])
        middle = (left + right) / 2
        mine = (min(left, middle - room / 2), max(right, middle + room / 2))
        level = next(
            (
                up
                for up in range(len(sides), 0, -1)
                if any(a < mine[1] and mine[0] < b for a, b in sides[up - 1])
            ),
            0,
        )
        if level == len(sides):
            sides.append([])
        sides[level].append(mine)
        levels[at] = level + 1
    return levels
