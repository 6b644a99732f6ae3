"""The strongest keys of every query: per head, and of means over heads and layers."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.calls.choose import one_sequence
from regard.calls.measures import measure_and
from regard.calls.texts import Layer
from regard.matrix import Pool, TopKeys
from regard.matrix.progress import progressing
from regard.views.means import mean_rows


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
    """Compute the content of a page.

    Args:
        layers: layers with the same queries and keys.
        batch: which sequence.
        count: number of keys per query.
        map_size: cells along a side of a map.
        progress: whether to show a progress bar.
    """
    found = [
        heads_of(layer, batch, count=count, map_size=map_size)
        for layer in progressing(layers, "layers", len(layers), progress)
    ]
    return StackContent(found, *means_of(layers, batch, count=count, progress=progress))


def heads_of(layer: Layer, batch: int | None, *, count: int, map_size: int) -> LayerContent:
    """Return the content of a page for a layer."""
    measures, (top, pooled) = measure_and(layer.call, batch, TopKeys(count), Pool(map_size))
    # Reductions index keys of the source; a page, those of the slice.
    keys = one_sequence(layer.call, batch).view.columns(top.keys).cpu().int()
    strongest = Strongest(
        keys.reshape(-1, *keys.shape[-2:]),
        top.weights.cpu().reshape(-1, *top.weights.shape[-2:]).float(),
    )
    maps = pooled.cells.cpu().float()
    return LayerContent(strongest, maps.reshape(-1, *maps.shape[-2:]), measures)


def means_of(
    layers: Sequence[Layer], batch: int | None, *, count: int, progress: bool | None
) -> tuple[list[Strongest], Strongest]:
    """Return the strongest keys in the mean over the heads of each layer, and over all layers.

    Args:
        layers: layers with the same queries and keys.
        batch: which sequence.
        count: number of keys per query.
        progress: whether to show a progress bar.
    """
    matrices = [one_sequence(layer.call, batch) for layer in layers]
    num_queries, num_keys = matrices[0].shape[-2:]
    parts: list[list[Strongest]] = [[] for _ in matrices]
    of_all: list[Strongest] = []
    blocks = progressing(
        mean_rows(matrices), "means over heads", num_queries, progress, lambda one: len(one.rows)
    )
    for block in blocks:
        total = torch.zeros(len(block.rows), num_keys)
        for mean, part in zip(block.means, parts, strict=True):
            part.append(_strongest(mean.float(), count))
            total += mean
        of_all.append(_strongest(total / len(matrices), count))
    return [joined(part) for part in parts], joined(of_all)


def _strongest(rows: Float[Tensor, "rows keys"], count: int) -> Strongest:
    weights, keys = rows[None].topk(min(count, rows.shape[1]), dim=2)
    return Strongest(keys.masked_fill(weights == 0.0, -1).int(), weights)


def joined(parts: Sequence[Strongest]) -> Strongest:
    """Concatenate the rows of parts."""
    return Strongest(
        torch.cat([part.keys for part in parts], dim=1),
        torch.cat([part.weights for part in parts], dim=1),
    )
