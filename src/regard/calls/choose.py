"""Select one sequence, head or call."""

from collections.abc import Sequence
from typing import Any, TypeVar

from regard.calls.call import AttentionCall
from regard.matrix import AttentionMatrix
from regard.matrix.lazy_matrix import LazyMatrix

Matrix = TypeVar("Matrix", bound=LazyMatrix)

MatrixOrCall = AttentionMatrix | AttentionCall


def one_sequence(matrix_or_call: MatrixOrCall, batch: int | None = None) -> AttentionMatrix:
    """Return the matrix of one sequence: [heads, queries, keys] or [queries, keys].

    Args:
        matrix_or_call: a matrix with or without these axes, or a call.
        batch: which sequence; needed if there are several.

    Raises:
        TypeError: `matrix_or_call` is neither a matrix nor a call.
        ValueError: there are several sequences and `batch` is None.
        IndexError: `batch` is out of range.
    """
    return sequence_of(_matrix_of(matrix_or_call), batch)


def one_or_all_sequences(matrix_or_call: MatrixOrCall, batch: int | None = None) -> AttentionMatrix:
    """Return the matrix of one sequence, or of all if there are several and none is chosen."""
    matrix = _matrix_of(matrix_or_call)
    several = batch is None and "batch" in matrix.axes and matrix.shape[0] != 1
    return matrix if several else sequence_of(matrix, batch)


def sequence_of(matrix: Matrix, batch: int | None = None) -> Matrix:
    """Return one sequence of a matrix of weights, effects or norms; see `one_sequence`."""
    if "batch" not in matrix.axes:
        return matrix
    if batch is None and matrix.shape[0] != 1:
        raise ValueError(
            f"there are {matrix.shape[0]} sequences: choose one with batch=0 or matrix[0]"
        )
    return matrix[batch or 0]


def one_head(
    matrix_or_call: MatrixOrCall, head: int | None = None, batch: int | None = None
) -> AttentionMatrix:
    """Return the matrix of one head of one sequence, [queries, keys].

    Raises:
        ValueError: there are several heads or sequences and none is chosen, or `head` is given
            for a matrix without heads.
    """
    return head_of(one_sequence(matrix_or_call, batch), head)


def head_of(matrix: Matrix, head: int | None = None) -> Matrix:
    """Return one head of a matrix of weights, effects or norms; see `one_head`."""
    if "heads" not in matrix.axes:
        if head is not None:
            raise ValueError(f"head must be None for a matrix of one head, got {head}")
        return matrix
    if head is None and matrix.shape[0] != 1:
        raise ValueError(
            f"there are {matrix.shape[0]} heads: choose one with head=0 or matrix[0, 5]"
        )
    return matrix[head or 0]


def head_or_mean(
    matrix_or_call: MatrixOrCall, head: int | None = None, batch: int | None = None
) -> AttentionMatrix:
    """Return the matrix of one head, [queries, keys], or of all heads if `head` is None."""
    matrix = one_sequence(matrix_or_call, batch)
    several = "heads" in matrix.axes and head is None and matrix.shape[0] != 1
    return matrix if several else one_head(matrix, head)


def _matrix_of(matrix_or_call: Any) -> AttentionMatrix:
    if isinstance(matrix_or_call, AttentionMatrix):
        return matrix_or_call
    if isinstance(matrix_or_call, Sequence):
        raise TypeError(
            f"expected one call of attention, got {len(matrix_or_call)}: choose one, such as "
            "seen[5]"
        )
    return checked(matrix_or_call).matrix


def checked(call: Any) -> AttentionCall:
    """Return a call as it is, or raise TypeError if it is none."""
    if not isinstance(call, AttentionCall):
        raise TypeError(
            f"expected an AttentionMatrix or an AttentionCall, got {type(call).__name__}; "
            "make one of a tensor with AttentionMatrix.from_weights(weights)"
        )
    return call


def listed(calls: Sequence[MatrixOrCall] | MatrixOrCall) -> list[AttentionCall]:
    """Return one or several calls as a list."""
    several = calls if isinstance(calls, Sequence) else [calls]
    return [
        AttentionCall.of(call) if isinstance(call, AttentionMatrix) else checked(call)
        for call in several
    ]
