"""What layers and heads are called in figures."""

from collections.abc import Sequence
from typing import Any

from regard.calls.call import AttentionCall
from regard.matrix import AttentionMatrix


def layer_of(what: Any) -> str:
    """Return the number of the layer of a call, "" if it has none, as a matrix has none."""
    return what.layer if isinstance(what, AttentionCall) else ""


def layer_names(calls: Sequence[Any]) -> list[str]:
    """Return the numbers of layers; places in the list, where these would not tell them apart."""
    names = [layer_of(call) for call in calls]
    if all(names) and len(set(names)) == len(names):
        return names
    return [str(place) for place in range(len(calls))]


def head_names(matrix: AttentionMatrix) -> list[str]:
    """Return the numbers of the heads of a matrix, as its source counts them."""
    return [str(head) for head in matrix.view.heads]


def title_of(what: Any, matrix: AttentionMatrix) -> str:
    """Return what a figure shows of a model: "layer 5, head 3", "layer 5, mean of 12 heads".

    Args:
        what: the call, or the matrix that was handed over.
        matrix: what is shown of it. If it has several heads, their mean is.
    """
    heads = head_names(matrix)
    if len(heads) > 1:
        shown = f"mean of {len(heads)} heads"
    else:
        shown = f"head {heads[0]}" if matrix.view.source.shape[1] > 1 else ""
    layer = layer_of(what)
    return ", ".join(part for part in (f"layer {layer}" if layer else "", shown) if part)
