"""Names of layers and heads in figures."""

from collections.abc import Sequence
from typing import Any

from regard.calls.call import AttentionCall
from regard.matrix.lazy_matrix import LazyMatrix


def layer_of(what: Any) -> str:
    """Return the layer number of a call; "" if it has none or is a matrix."""
    return what.layer if isinstance(what, AttentionCall) else ""


def layer_names(calls: Sequence[Any]) -> list[str]:
    """Return the layer numbers; indices in the list if those are not unique."""
    names = [layer_of(call) for call in calls]
    if all(names) and len(set(names)) == len(names):
        return names
    return [str(place) for place in range(len(calls))]


def head_names(matrix: LazyMatrix) -> list[str]:
    """Return the indices of the heads of a matrix in its source."""
    return [str(head) for head in matrix.view.heads]


def title_of(what: Any, matrix: LazyMatrix) -> str:
    """Return the title of a figure: "layer 5, head 3", "layer 5, mean of 12 heads".

    Args:
        what: the call or matrix.
        matrix: the drawn part of it. Several heads are averaged.
    """
    heads = head_names(matrix)
    if len(heads) > 1:
        shown = f"mean of {len(heads)} heads"
    else:
        shown = f"head {heads[0]}" if matrix.view.source.shape[1] > 1 else ""
    layer = layer_of(what)
    return ", ".join(part for part in (f"layer {layer}" if layer else "", shown) if part)
