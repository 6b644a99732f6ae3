"""The content of a page of effects: what each look does to a target."""

from collections.abc import Sequence

import torch

from regard.calls.choose import sequence_of
from regard.calls.texts import TextLayer
from regard.matrix import Pool, TopKeys
from regard.views.page.strongest import LayerContent, StackContent, layer_content, run_passes
from regard.views.row_pass import RowPass


def effects_of(
    layers: Sequence[TextLayer],
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
    passes = [RowPass(matrix, (TopKeys(count), Pool(map_size))) for matrix in matrices]
    sums, total = run_passes(passes, count, progress, added=True)
    found: list[LayerContent] = []
    for layer, matrix, one in zip(layers, matrices, passes, strict=True):
        measures = {"effect": layer.call.checked_gradient.by_head(batch).cpu().float()}
        top, pooled = one.finish()
        found.append(layer_content(matrix, top, pooled, measures))
    return StackContent(found, sums, total)


def first_effects(
    layers: Sequence[TextLayer], found: Sequence[LayerContent]
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
