"""The content of a page of effects: what each look does to a target."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.calls.choose import sequence_of
from regard.calls.texts import Layer
from regard.matrix import EffectMatrix, Pool, TopKeys
from regard.matrix.progress import progressing
from regard.views.means import mean_rows
from regard.views.page.strongest import LayerContent, StackContent, Strongest, joined


def effects_of(
    layers: Sequence[Layer],
    batch: int | None,
    *,
    count: int,
    map_size: int,
    progress: bool | None,
) -> StackContent:
    """Compute the content of a page of effects; arguments as for `contents_of`.

    The measure of a head is its effect. Effects of heads and layers are added up.
    """
    matrices = [sequence_of(layer.call.effects, batch) for layer in layers]
    each = progressing(matrices, "layers", len(layers), progress)
    found = [
        _content(layer, matrix, batch, count, map_size)
        for layer, matrix in zip(layers, each, strict=True)
    ]
    num_queries, num_keys = matrices[0].shape[-2:]
    parts: list[list[Strongest]] = [[] for _ in matrices]
    of_all: list[Strongest] = []
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
    return StackContent(found, [joined(part) for part in parts], joined(of_all))


def _content(
    layer: Layer, matrix: EffectMatrix, batch: int | None, count: int, map_size: int
) -> LayerContent:
    top, pooled = matrix.summarize(TopKeys(count), Pool(map_size), progress=False)
    return LayerContent(
        Strongest(matrix.view.columns(top.keys).cpu().int(), top.weights.cpu().float()),
        pooled.cells.cpu().float(),
        {"effect": layer.call.checked_gradient.by_head(batch).cpu().float()},
    )


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
