"""The strongest keys of every query: per head, and of means over heads and layers."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.calls.choose import one_sequence
from regard.calls.measures import REDUCTIONS, measured
from regard.calls.texts import TextLayer
from regard.matrix import Pool, TopKeys
from regard.matrix.lazy_matrix import LazyMatrix
from regard.matrix.pool import PoolResult
from regard.matrix.top_keys import TopKeysResult
from regard.progress import progressing
from regard.views.row_pass import RowPass

_ROWS, _PAIRS = 256, 2**22
"""Rows of a pass at a time: at least so many, and as many as have so many pairs with all keys."""


@dataclass(frozen=True)
class Strongest:
    """The strongest keys of each query, the strongest first.

    Attributes:
        keys: their columns in the matrix, −1 where there are no more.
        weights: their weights or effects, 0 there.
    """

    keys: Int[Tensor, "some_heads queries ranks"]
    weights: Float[Tensor, "some_heads queries ranks"]


@dataclass(frozen=True)
class LayerContent:
    """The content of a page for a layer.

    Attributes:
        strongest: the strongest keys in each head.
        maps: the pooled matrix of each head.
        measures: measures of each head, by name.
    """

    strongest: Strongest
    maps: Float[Tensor, "heads rows columns"]
    measures: dict[str, Tensor]


@dataclass(frozen=True)
class StackContent:
    """The content of a page for layers with the same queries and keys.

    Attributes:
        layers: that of each layer.
        means: the strongest keys in the mean over the heads of each layer; of effects, in the sum.
        average: the strongest keys in the mean over all layers; of effects, in the sum.
    """

    layers: Sequence[LayerContent]
    means: Sequence[Strongest]
    average: Strongest


def contents_of(
    layers: Sequence[TextLayer],
    batch: int | None,
    *,
    count: int,
    map_size: int,
    progress: bool | None,
) -> StackContent:
    """Compute the content of a page, in one pass over all layers, some rows of each at a time.

    Args:
        layers: layers with the same queries and keys.
        batch: which sequence.
        count: number of keys per query.
        map_size: cells along a side of a map.
        progress: whether to show a progress bar.
    """
    reductions = (*REDUCTIONS, TopKeys(count), Pool(map_size))
    matrices = [one_sequence(layer.call, batch) for layer in layers]
    passes = [RowPass(matrix, reductions) for matrix in matrices]
    means, average = run_passes(passes, count, progress)
    found: list[LayerContent] = []
    for layer, matrix, one in zip(layers, matrices, passes, strict=True):
        *of_measures, top, pooled = one.finish()
        measures = measured(layer.call, matrix, *of_measures)
        found.append(layer_content(matrix, top, pooled, measures))
    return StackContent(found, means, average)


def run_passes(
    passes: Sequence[RowPass], count: int, progress: bool | None, *, added: bool = False
) -> tuple[list[Strongest], Strongest]:
    """Run passes over all their rows, some rows of each at a time.

    Args:
        passes: passes over matrices with the same queries and keys.
        count: number of keys per query.
        progress: whether to show a progress bar.
        added: whether to add heads and matrices up instead of taking means, as of effects.

    Returns:
        The strongest keys in the mean over the heads of each matrix, and over all matrices.
    """
    num_queries, num_keys = passes[0].matrix.shape[-2:]
    parts: list[list[Strongest]] = [[] for _ in passes]
    of_all: list[Strongest] = []
    height = max(_ROWS, _PAIRS // max(1, num_keys))
    starts = range(0, num_queries, height)
    blocks = [range(start, min(start + height, num_queries)) for start in starts]
    for rows in progressing(blocks, "rows of all layers", num_queries, progress, len):
        total = torch.zeros(len(rows), num_keys)
        for one, part in zip(passes, parts, strict=True):
            mean = one.update(rows).float().cpu() * (one.heads if added else 1)
            part.append(_strongest(mean, count, signed=added))
            total += mean
        of_all.append(_strongest(total / (1 if added else len(passes)), count, signed=added))
    return [_joined(part) for part in parts], _joined(of_all)


def layer_content(
    matrix: LazyMatrix, top: TopKeysResult, pooled: PoolResult, measures: dict[str, Tensor]
) -> LayerContent:
    """Return the content of a page for a layer, from reductions of its matrix."""
    # Reductions index keys of the source; a page, those of the slice.
    keys = matrix.view.columns(top.keys).cpu().int()
    strongest = Strongest(
        keys.reshape(-1, *keys.shape[-2:]),
        top.weights.cpu().reshape(-1, *top.weights.shape[-2:]).float(),
    )
    maps = pooled.cells.cpu().float()
    return LayerContent(strongest, maps.reshape(-1, *maps.shape[-2:]), measures)


def _strongest(rows: Float[Tensor, "rows keys"], count: int, *, signed: bool) -> Strongest:
    sizes = rows.abs() if signed else rows
    keys = sizes[None].topk(min(count, rows.shape[1]), dim=2).indices
    weights = rows[None].gather(2, keys)
    return Strongest(keys.masked_fill(weights == 0.0, -1).int(), weights)


def _joined(parts: Sequence[Strongest]) -> Strongest:
    """Concatenate the rows of parts."""
    return Strongest(
        torch.cat([part.keys for part in parts], dim=1),
        torch.cat([part.weights for part in parts], dim=1),
    )
