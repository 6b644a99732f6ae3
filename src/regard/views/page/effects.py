"""The content of a page of effects: what each look does to a target."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.calls.texts import Layer
from regard.matrix import Pool, TopKeys
from regard.matrix.lazy_matrix import LazyMatrix
from regard.matrix.progress import progressing
from regard.views.means import mean_rows
from regard.views.page.strongest import LayerContent, Strongest, joined


def effects_of(
    layer: Layer, matrix: LazyMatrix, batch: int | None, *, count: int, map_size: int
) -> LayerContent:
    """Return the content of a page of effects for a layer; its measure is the effect of a head.

    Args:
        layer: the layer.
        matrix: its effects, [heads, queries, keys].
        batch: which sequence.
        count: number of keys per query.
        map_size: largest number of cells along an axis of a map.
    """
    top, pooled = matrix.summarize(TopKeys(count), Pool(map_size), progress=False)
    measures = {"effect": layer.call.checked_gradient.by_head(batch).cpu().float()}
    return LayerContent(
        Strongest(matrix.view.columns(top.keys).cpu().int(), top.weights.cpu().float()),
        pooled.cells.cpu().float(),
        measures,
    )


def sums_of(
    matrices: Sequence[LazyMatrix], *, count: int, progress: bool | None
) -> tuple[list[Strongest], Strongest]:
    """Return the strongest keys in the sum over the heads of each matrix, and over all of them.

    Args:
        matrices: [heads, queries, keys], of the same queries and keys.
        count: number of keys per query.
        progress: whether to show a progress bar.
    """
    parts: list[list[Strongest]] = [[] for _ in matrices]
    of_all: list[Strongest] = []
    num_queries, num_keys = matrices[0].shape[-2:]
    blocks = progressing(
        mean_rows(matrices), "sums over heads", num_queries, progress, lambda one: len(one.rows)
    )
    for block in blocks:
        total = torch.zeros(len(block.rows), num_keys)
        for mean, matrix, part in zip(block.means, matrices, parts, strict=True):
            rows = mean.float() * matrix.shape[0]
            part.append(_strongest(rows, count))
            total += rows
        of_all.append(_strongest(total, count))
    return [joined(part) for part in parts], joined(of_all)


def first_effects(
    layers: Sequence[Layer], found: Sequence[LayerContent]
) -> list[dict[str, int | str]]:
    """Return layer, head and query of the largest effect, for each text of queries, and why."""
    why = "one of its looks has the largest effect"
    best: dict[int, tuple[float, dict[str, int | str]]] = {}
    for number, (layer, content) in enumerate(zip(layers, found, strict=True)):
        sizes = content.strongest.weights[..., 0].abs().nan_to_num()
        largest, text = sizes.max().item(), layer.queries.text
        if text not in best or largest > best[text][0]:
            head, token = (int(x) for x in torch.unravel_index(sizes.argmax(), sizes.shape))
            best[text] = largest, {"layer": number, "head": head, "token": token, "why": why}
    return [best[text][1] for text in sorted(best, reverse=True)]


def _strongest(rows: Float[Tensor, "rows keys"], count: int) -> Strongest:
    keys = rows[None].abs().topk(min(count, rows.shape[1]), dim=2).indices
    effects = rows[None].gather(2, keys)
    return Strongest(keys.masked_fill(effects == 0.0, -1).int(), effects)
