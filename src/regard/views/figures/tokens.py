"""Labels of the rows and columns of a matrix."""

from collections.abc import Sequence
from typing import Literal

import torch

from regard.calls.call import Kind
from regard.calls.tokens import label, readable
from regard.matrix.lazy_matrix import LazyMatrix
from regard.matrix.source import as_tensor
from regard.views.figures.fonts import drawable

Labels = list[str] | None
"""A label for each token, or None to show positions."""


def labels_of(tokens: Sequence[str]) -> list[str]:
    """Return tokens as they are written in figures."""
    return [drawable(label(piece)) for piece in readable(tokens)]


def positions_of(matrix: LazyMatrix, axis: Literal["queries", "keys"]) -> list[int]:
    """Return the index in the whole matrix of each row or column."""
    return as_tensor(getattr(matrix.view, axis)).tolist()


def row_and_column_labels(
    matrix: LazyMatrix,
    tokens: Sequence[str] | None,
    key_tokens: Sequence[str] | None = None,
    *,
    kind: Kind = "self",
) -> tuple[Labels, Labels]:
    """Return the labels of the rows and columns of a matrix.

    Args:
        matrix: with or without further axes.
        tokens: those of the matrix, or of the whole text if the matrix is a slice.
        key_tokens: the same for its columns, for cross-attention.
        kind: "self" or "cross".

    Raises:
        ValueError: the number of tokens doesn't fit.
    """
    view = matrix.view
    rows, columns = as_tensor(view.queries), as_tensor(view.keys)
    of_rows, of_columns = (
        None if each is None else labels_of(each) for each in (tokens, key_tokens)
    )
    if of_rows is not None and of_columns is None and kind != "cross":
        return _of_one_text(matrix, of_rows)
    return (
        _picked("queries", of_rows, rows.tolist(), view.source.shape[2], "tokens"),
        _picked("keys", of_columns, columns.tolist(), view.source.shape[3], "key_tokens"),
    )


def _of_one_text(matrix: LazyMatrix, labels: list[str]) -> tuple[Labels, Labels]:
    """Return the labels of rows and columns that are tokens of one text."""
    view = matrix.view
    places, columns = view.source.positions(view.queries).cpu(), as_tensor(view.keys)
    if len(labels) == view.source.shape[3] and not bool((places >= len(labels)).any()):
        return [labels[place] for place in places], [labels[place] for place in columns]
    if torch.equal(places, columns):
        found = _picked("keys", labels, columns.tolist(), view.source.shape[3], "tokens")
        return found, found
    raise ValueError(
        f"tokens must have as many tokens as keys ({view.source.shape[3]}), got {len(labels)}; "
        "for cross-attention, pass the tokens of the keys as key_tokens"
    )


def _picked(axis: str, labels: Labels, places: list[int], size: int, name: str) -> Labels:
    if labels is None or len(labels) == len(places):
        return labels
    if len(labels) == size:
        return [labels[place] for place in places]
    raise ValueError(
        f"{name} must have as many tokens as {axis} ({len(places)}), got {len(labels)}"
    )
