"""Means over the heads of matrices, some rows at a time, without materialising a matrix."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from regard.matrix.lazy_matrix import LazyMatrix

_PAIRS = 2**24
"""Weights of a matrix computed at once: 64 MB of float32."""


class MeanRows(NamedTuple):
    """The means of some rows.

    Attributes:
        rows: which rows.
        means: the mean over the heads of each matrix, [rows, keys], on the CPU, computed lazily.
    """

    rows: range
    means: Iterator[Float[Tensor, "rows keys"]]


def mean_rows(matrices: Sequence[LazyMatrix]) -> Iterator[MeanRows]:
    """Yield the means over the heads of matrices, some rows of all at a time.

    Args:
        matrices: [heads, queries, keys] or [queries, keys], of the same queries and keys.
    """
    num_queries, num_keys = matrices[0].shape[-2:]
    most_heads = max(matrix.shape[0] if "heads" in matrix.axes else 1 for matrix in matrices)
    height = max(1, _PAIRS // max(1, most_heads * num_keys))
    for start in range(0, num_queries, height):
        rows = range(start, min(start + height, num_queries))
        yield MeanRows(rows, map(partial(_mean, rows), matrices))


def _mean(rows: range, matrix: LazyMatrix) -> Float[Tensor, "rows keys"]:
    weights = matrix[..., rows.start : rows.stop, :].dense()
    return weights.mean(dim=0).cpu() if "heads" in matrix.axes else weights.cpu()
