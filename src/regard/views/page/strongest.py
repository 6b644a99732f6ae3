"""The strongest keys of every query: per head, and of means over heads and layers."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.calls.choose import one_sequence
from regard.calls.measures import REDUCTIONS, measured
from regard.calls.texts import Layer
from regard.matrix import Pool, TopKeys
from regard.matrix.progress import progressing
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
    layers: Sequence[Layer],
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
    passes = [RowPass(one_sequence(layer.call, batch), reductions) for layer in layers]
    num_queries, num_keys = passes[0].matrix.shape[-2:]
    parts: list[list[Strongest]] = [[] for _ in passes]
    of_all: list[Strongest] = []
    height = max(_ROWS, _PAIRS // max(1, num_keys))
    starts = range(0, num_queries, height)
    blocks = [range(start, min(start + height, num_queries)) for start in starts]
    for rows in progressing(blocks, "rows of all layers", num_queries, progress, len):
        total = torch.zeros(len(rows), num_keys)
        for one, part in zip(passes, parts, strict=True):
            mean = one.update(rows).float().cpu()
            part.append(_strongest(mean, count))
            total += mean
        of_all.append(_strongest(total / len(layers), count))
    found = [_content(layer, one) for layer, one in zip(layers, passes, strict=True)]
    return StackContent(found, [joined(part) for part in parts], joined(of_all))


def _content(layer: Layer, found: RowPass) -> LayerContent:
    *of_measures, top, pooled = found.finish()
    # Reductions index keys of the source; a page, those of the slice.
    keys = found.matrix.view.columns(top.keys).cpu().int()
    strongest = Strongest(
        keys.reshape(-1, *keys.shape[-2:]),
        top.weights.cpu().reshape(-1, *top.weights.shape[-2:]).float(),
    )
    maps = pooled.cells.cpu().float()
    measures = measured(layer.call, found.matrix, *of_measures)
    return LayerContent(strongest, maps.reshape(-1, *maps.shape[-2:]), measures)


def _strongest(rows: Float[Tensor, "rows keys"], count: int) -> Strongest:
    weights, keys = rows[None].topk(min(count, rows.shape[1]), dim=2)
    return Strongest(keys.masked_fill(weights == 0.0, -1).int(), weights)


def joined(parts: Sequence[Strongest]) -> Strongest:
    """Concatenate the rows of parts."""
    return Strongest(
        torch.cat([part.keys for part in parts], dim=1),
        torch.cat([part.weights for part in parts], dim=1),
    )
