"""Choose one sequence, head or call of what a user handed over."""

from collections.abc import Sequence
from typing import Any

from regard.calls.call import AttentionCall
from regard.matrix import AttentionMatrix


def one_sequence(
    what: AttentionMatrix | AttentionCall, batch: int | None = None
) -> AttentionMatrix:
    """Return the matrix of one sequence: [heads, queries, keys] or [queries, keys].

    Args:
        what: a matrix with or without these axes, or a call.
        batch: which sequence; needed if there are several.

    Raises:
        TypeError: it is neither a matrix nor a call.
        ValueError: there are several sequences and none was chosen.
        IndexError: there is no such sequence.
    """
    matrix = what if isinstance(what, AttentionMatrix) else _matrix_of(what)
    if "batch" not in matrix.axes:
        return matrix
    if batch is None and matrix.shape[0] != 1:
        raise ValueError(
            f"a picture shows one sequence and there are {matrix.shape[0]}: choose one, as batch=0 "
            "or matrix[0]"
        )
    return matrix[batch or 0]


def one_head(
    what: AttentionMatrix | AttentionCall, head: int | None = None, batch: int | None = None
) -> AttentionMatrix:
    """Return the matrix of one head of one sequence, [queries, keys].

    Raises:
        ValueError: there are several heads or sequences and none was chosen, or a head was chosen
            of a matrix that is one.
    """
    matrix = one_sequence(what, batch)
    if "heads" not in matrix.axes:
        if head is not None:
            raise ValueError(f"this matrix is of one head already, got head={head}")
        return matrix
    if head is None and matrix.shape[0] != 1:
        raise ValueError(
            f"this picture shows one head and there are {matrix.shape[0]}: choose one, as head=0 "
            "or matrix[0, 5]"
        )
    return matrix[head or 0]


def head_or_mean(
    what: AttentionMatrix | AttentionCall, head: int | None = None, batch: int | None = None
) -> AttentionMatrix:
    """Return the matrix of one head, [queries, keys], or of all of them if none was chosen."""
    matrix = one_sequence(what, batch)
    several = "heads" in matrix.axes and head is None and matrix.shape[0] != 1
    return matrix if several else one_head(matrix, head)


def _matrix_of(what: Any) -> AttentionMatrix:
    if isinstance(what, Sequence):
        raise TypeError(
            f"this picture shows one call of attention, got {len(what)}: choose one, as seen[5]"
        )
    return checked(what).matrix


def checked(what: Any) -> AttentionCall:
    """Return a call, or raise TypeError if it is none."""
    if not isinstance(what, AttentionCall):
        raise TypeError(
            "expected an AttentionMatrix or a call that regard.watch has seen, got "
            f"{type(what).__name__}; AttentionMatrix.from_weights(weights) takes weights that are "
            "written down"
        )
    return what


def listed(
    calls: Sequence[AttentionCall | AttentionMatrix] | AttentionCall | AttentionMatrix,
) -> list[AttentionCall]:
    """Return calls, one or several, as a list."""
    several = calls if isinstance(calls, Sequence) else [calls]
    return [
        AttentionCall.of(one) if isinstance(one, AttentionMatrix) else checked(one)
        for one in several
    ]
