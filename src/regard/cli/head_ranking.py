"""Rank heads for a token, and choose a layer's call."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.calls import AttentionCall
from regard.calls.choose import one_sequence
from regard.calls.first_pair import informative
from regard.calls.texts import TextLayer


@dataclass(frozen=True)
class RankedHead:
    """The strongest keys of a token in one head.

    Attributes:
        layer: the layer.
        head: the number of the head.
        keys: positions of the strongest keys.
        weights: their weights, or effects.
        strength: the largest weight on an informative word, or the largest effect by size.
    """

    layer: TextLayer
    head: int
    keys: list[int]
    weights: list[float]
    strength: float


def ranked_heads(
    layers: Sequence[TextLayer], token: int, *, head: int | None, top: int, effects: bool = False
) -> list[RankedHead]:
    """Return the strongest keys of a token in each head, by `RankedHead.strength`.

    Args:
        layers: layers with the same query tokens.
        token: position of the query token.
        head: return only this head.
        top: number of keys per head.
        effects: rank by effects, not by weights.
    """
    found: list[RankedHead] = []
    for layer in layers:
        if effects:
            rows = layer.call.effects[0][:, token].float().cpu()
            strengths = rows.abs().amax(dim=-1).tolist()
        else:
            rows = one_sequence(layer.call)[:, token].float().cpu()
            words = informative(layer.queries, layer.keys, torch.tensor([token]))
            strengths = rows.masked_fill(~words, 0.0).amax(dim=-1).tolist()
        strongest = rows.abs().topk(min(top, rows.shape[-1]), dim=-1).indices
        keys, weights = strongest.tolist(), rows.gather(-1, strongest).tolist()
        found += [
            RankedHead(layer, number, keys[number], weights[number], strengths[number])
            for number in range(len(rows))
            if head in (None, number)
        ]
    return sorted(found, key=lambda one: -one.strength)


def main_call(calls: Sequence[AttentionCall]) -> AttentionCall:
    """Return the cross-attention of a layer if there is one, else its first call."""
    return next((call for call in calls if call.kind == "cross"), calls[0])
