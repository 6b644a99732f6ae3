"""The strongest pairs of a matrix, found without materialising it."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from regard.matrix import AttentionMatrix
from regard.matrix.source import as_tensor
from regard.views.means import mean_rows


class StrongestPairs(NamedTuple):
    """Pairs of a matrix, the strongest first.

    Attributes:
        queries: index of each query among the keys of the matrix, [pairs].
        keys: index of each key, [pairs].
        weights: [pairs].
        total: number of pairs, including those left out.
    """

    queries: NDArray[Any]
    keys: NDArray[Any]
    weights: NDArray[Any]
    total: int


def strongest_pairs(
    matrix: AttentionMatrix, *, threshold: float, top: int | None, most: int
) -> StrongestPairs:
    """Return the pairs above a threshold that are among the strongest of their query.

    Args:
        matrix: of one head, [queries, keys], or of several, which are averaged.
        threshold: the smallest weight, above 0.
        top: largest number of pairs per query; all by default.
        most: largest number of pairs in all.

    Raises:
        ValueError: a query is not among the keys, or the threshold is not above 0.
    """
    if not threshold > 0.0:
        raise ValueError(f"threshold must be above 0, got {threshold}")
    if top is not None and top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    if "heads" in matrix.axes:
        rows, keys, weights, total = _of_mean(matrix, threshold, top, most)
    elif top is None:
        edges = matrix.edges(threshold=threshold, limit=most)
        rows = torch.searchsorted(as_tensor(matrix.view.queries), edges.queries.cpu().contiguous())
        keys, weights = matrix.view.columns(edges.keys).cpu(), edges.weights.cpu()
        total = edges.total
    else:
        best = matrix.top(min(top, matrix.shape[1]))
        rows, ranks = (best.weights >= threshold).nonzero(as_tuple=True)
        keys = matrix.view.columns(best.keys[rows, ranks]).cpu()
        rows, weights, total = rows.cpu(), best.weights[rows, ranks].cpu(), len(rows)
    order = weights.argsort(descending=True, stable=True)[:most]
    queries = _standing(matrix)[rows[order].numpy()]
    return StrongestPairs(queries, keys[order].numpy(), weights[order].numpy(), total)


def _of_mean(
    matrix: AttentionMatrix, threshold: float, top: int | None, most: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """Return rows, columns and weights of the strongest pairs of a mean, and their total."""
    num_keys = matrix.shape[-1]
    parts: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    total = 0
    for block in mean_rows([matrix]):
        (weights,) = block.means
        if top is not None and top < num_keys:
            values, keys = weights.topk(top, dim=1)
            weights = torch.zeros_like(weights).scatter_(1, keys, values)
        total += int((weights >= threshold).count_nonzero())
        values, places = weights.flatten().topk(min(most, weights.numel()))
        places = places[values >= threshold]
        rows = places // max(1, num_keys) + block.rows.start
        parts.append((rows, places % max(1, num_keys), values[values >= threshold]))
    rows, keys, weights = (torch.cat(part) for part in zip(*parts, strict=True))
    return rows, keys, weights, total


def _standing(matrix: AttentionMatrix) -> NDArray[Any]:
    """Return the index of each query among the keys."""
    view = matrix.view
    keys = as_tensor(view.keys).numpy()
    positions = view.source.positions(view.queries).cpu().numpy()
    found = np.searchsorted(keys, positions)
    if (found == len(keys)).any() or (keys[found] != positions).any():
        raise ValueError(
            "a graph needs queries that are among the keys: take the same slice of both, such as "
            "matrix[0, 3, 64:128, 64:128], or draw a heatmap"
        )
    return found
