"""Which heads to show first for a token, and which call of a layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.calls import AttentionCall
from regard.calls.choose import one_sequence
from regard.calls.first_look import informative
from regard.calls.texts import Layer


@dataclass(frozen=True)
class RankedHead:
    """Where a token looks in one head.

    Attributes:
        layer: the layer.
        head: the number of the head.
        keys: the tokens that it looks at most, by number.
        weights: how much it looks at each.
        strength: how much it looks at the word that it looks at most.
    """

    layer: Layer
    head: int
    keys: list[int]
    weights: list[float]
    strength: float


def ranked_heads(
    layers: Sequence[Layer], token: int, *, head: int | None, top: int
) -> list[RankedHead]:
    """Return where a token looks in each head, those first that look hardest at a single word.

    Args:
        layers: layers that look from the same tokens.
        token: the token that looks.
        head: the only head that is wanted.
        top: how many keys are listed for each head.
    """
    found: list[RankedHead] = []
    for layer in layers:
        rows = one_sequence(layer.call)[:, token].float().cpu()
        words = informative(layer, torch.tensor([token]))
        strengths = rows.masked_fill(~words, 0.0).amax(dim=-1).tolist()
        weights, keys = (x.tolist() for x in rows.topk(min(top, rows.shape[-1]), dim=-1))
        found += [
            RankedHead(layer, number, keys[number], weights[number], strengths[number])
            for number in (range(len(rows)) if head is None else [head])
        ]
    return sorted(found, key=lambda one: -one.strength)


def main_call(calls: Sequence[AttentionCall]) -> AttentionCall:
    """Return the call of a layer to show: where there are several, cross-attention."""
    return next((call for call in calls if call.kind == "cross"), calls[0])
