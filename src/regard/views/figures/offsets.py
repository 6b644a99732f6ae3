"""Attention by the offset from query to key."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.calls.call import AttentionCall
from regard.calls.choose import one_head, one_sequence
from regard.matrix import AttentionMatrix
from regard.views.figures.colours import MARKERS, SERIES, sequential
from regard.views.figures.fonts import width_of
from regard.views.figures.names import head_names, layer_names, layer_of, title_of
from regard.views.figures.style import COLUMN, SMALL, TALLEST, drawing, one_axes, size_in_points
from regard.views.figures.ticks import round_places

if TYPE_CHECKING:
    import matplotlib.figure

_FEW = len(SERIES)
"""Largest number of heads drawn as lines."""


class _Head(NamedTuple):
    """The offsets of a head.

    Attributes:
        layer: its layer, "" if there is only one.
        name: its number.
        near: the share of each offset, [2 · reach + 1].
        beyond: the share of all others.
    """

    layer: str
    name: str
    near: NDArray[Any]
    beyond: float

    @property
    def title(self) -> str:
        parts = (f"layer {self.layer}" if self.layer else "", f"head {self.name}")
        return ", ".join(part for part in parts if part)


@drawing()
def offsets(
    what: AttentionMatrix | AttentionCall | Sequence[AttentionMatrix | AttentionCall],
    *,
    reach: int = 16,
    head: int | None = None,
    batch: int | None = None,
    ax: Any = None,
    figsize: tuple[float, float] | None = None,
) -> "matplotlib.figure.Figure":
    """Draw the share of attention at each offset, key − query, averaged over queries.

    One head is drawn as bars, up to six as lines, more as an image with a row for each. The share
    beyond the reach is written beside them, or is the last column of the image.

    Args:
        what: a watched call, an attention matrix, or several of either.
        reach: the largest offset on both sides.
        head: which head; all by default.
        batch: which sequence, if there are several.
        ax: a matplotlib Axes to draw in.
        figsize: width and height in inches; by default as wide as a column.

    Raises:
        ImportError: matplotlib is missing.
        ValueError: a call is cross-attention, which has no offsets.

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 4, 8)
    >>> figure = offsets(regard.AttentionMatrix(x, x, pattern=regard.causal()), reach=2)
    >>> [round(float(bar.get_height()), 4) for bar in figure.axes[0].patches]
    [0.1458, 0.2708, 0.5208, 0.0, 0.0]
    """
    several = isinstance(what, Sequence)
    calls = list(what) if isinstance(what, Sequence) else [what]
    if not calls:
        raise ValueError("there are no calls to draw")
    found = _found(calls, reach, head, batch, layers=layer_names(calls) if several else [""])
    many = len(found) > _FEW
    row = 0.14 if len(found) <= 40 else 0.05 if len(found) <= 100 else 0.025
    tall = min(TALLEST, max(1.8, row * len(found) + 0.8)) if many else 2.2
    figure, ax = one_axes(ax, COLUMN, tall, figsize)
    ax.grid(visible=False)
    if len(found) == 1:
        shown = one_head(calls[0], head, batch)
        ax.bar(range(-reach, reach + 1), found[0].near, width=0.8, color=SERIES[0])
        beyond = f"{found[0].beyond:.0%} beyond ±{reach}"
        ax.set_title(": ".join(part for part in (title_of(calls[0], shown), beyond) if part))
    elif many:
        if not several:
            ax.set_title(_layer_title(calls[0]))
        _draw_picture(ax, found, reach)
    else:
        _draw_lines(ax, found, reach)
        if not several:
            ax.set_title(_layer_title(calls[0]))
    ax.set_xlabel("offset, key − query")
    if not many:
        ax.set(ylabel="share of the mass", xlim=(-reach - 0.7, reach + 0.7), ylim=(0.0, None))
        ax.spines[["top", "right"]].set_visible(False)
    # Ticks depend on the height, and the height on the labels: do it twice.
    size_in_points(ax)
    return figure


def _found(
    calls: Sequence[Any], reach: int, head: int | None, batch: int | None, *, layers: list[str]
) -> list[_Head]:
    found: list[_Head] = []
    for call, layer in zip(calls, layers, strict=True):
        if isinstance(call, AttentionCall) and call.kind == "cross":
            raise ValueError(
                "offsets need self-attention, and this call is cross-attention: draw a heatmap"
            )
        matrix = one_sequence(call, batch) if head is None else one_head(call, head, batch)
        result = matrix.offsets(reach)
        near = result.near.cpu().double().numpy().reshape(-1, 2 * reach + 1)
        beyond = result.beyond.cpu().reshape(-1).tolist()
        names = head_names(matrix)
        found += [_Head(layer, *each) for each in zip(names, near, beyond, strict=True)]
    return found


def _layer_title(call: Any) -> str:
    layer = layer_of(call)
    return f"layer {layer}" if layer else ""


def _draw_lines(ax: Any, heads: list[_Head], reach: int) -> None:
    for number, head in enumerate(heads):
        ax.plot(
            range(-reach, reach + 1),
            head.near,
            color=SERIES[number],
            marker=MARKERS[number],
            markersize=2.5,
            linewidth=1.0,
            label=f"{head.title}: {head.beyond:.0%}",
        )
    widest = max(width_of(line.get_label(), SMALL) for line in ax.lines) + 36.0
    ax.legend(
        title=f"with what lies beyond ±{reach}",
        title_fontsize=SMALL,
        frameon=False,
        # Below, where it never covers a line.
        loc="upper center",
        bbox_to_anchor=(0.5, -0.26),
        borderaxespad=0.0,
        ncols=max(1, min(3, int(size_in_points(ax)[0] // widest))),
    )


def _draw_picture(ax: Any, heads: list[_Head], reach: int) -> None:
    """Draw a row for each head; after a gap, a last column has the share beyond the reach."""
    cells = np.array([[*head.near, np.nan, head.beyond] for head in heads])
    last = reach + 2
    sides = (-reach - 0.5, last + 0.5, len(heads) - 0.5, -0.5)
    strongest = float(np.nanmax(cells)) or 1.0
    look: dict[str, Any] = {"cmap": sequential(ax), "vmin": 0.0, "vmax": strongest}
    image = ax.imshow(cells, extent=sides, aspect="auto", **look)
    ax.figure.colorbar(image, ax=ax, label="share of the mass", aspect=25)
    places = range(-reach, reach + 1)
    width, height = size_in_points(ax)
    # One offset less at the right than fits, to leave space for the label.
    room = width / len(cells[0])
    some = [at - reach for at in round_places(places, room, across=True)]
    some = [at for at in some if at <= last - 1 - 22.0 / room]
    ax.set_xticks([*some, last], [*(f"{at}".replace("-", "−") for at in some), "beyond"])
    starts = [at for at, head in enumerate(heads) if not at or head.layer != heads[at - 1].layer]
    layered = len(starts) > 1
    listed = starts if layered else range(len(heads))
    rows = round_places(range(len(listed)), height / len(listed), across=False, apart=9.0)
    names = [heads[listed[row]].layer if layered else heads[listed[row]].name for row in rows]
    size = len(heads) / len(listed)
    ax.set_yticks([listed[row] + (size - 1) / 2 if layered else row for row in rows], names)
    ax.set_ylabel(
        "layer, its heads downwards" if layered and size > 1 else "layer" if layered else "head"
    )
    ax.axvline(reach + 0.5, color=ax.spines["left"].get_edgecolor(), linewidth=0.6)
    ax.axvline(reach + 1.5, color=ax.spines["left"].get_edgecolor(), linewidth=0.6)
    if layered and size > 1:
        for start in starts[1:]:
            ax.axhline(start - 0.5, color=ax.spines["left"].get_edgecolor(), linewidth=0.2)
