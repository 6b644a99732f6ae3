"""How single heads look at a passage: which of its tokens matter, and who looks."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.matrix import EffectMatrix

HEADS = 8
"""So many heads of each passage are looked into, those with the largest effects by size."""

_PAIRS = 2**22
"""So many pairs are computed at once."""

QUERIES = 8
"""So many tokens that look are kept of each head."""


@dataclass(frozen=True, eq=False)
class HeadLooks:
    """The effects of one head's looks at a passage from outside, by key and by query.

    Attributes:
        layer: the layer, as in `Attribution.by_head`.
        head: the head.
        by_key: the effect of each token of the passage; they add up to that of the head.
        queries: the tokens whose looks have the largest effects by size, the largest first; counted
            from the first token of the prompt.
        by_query: their effects.
    """

    layer: int
    head: int
    by_key: Float[Tensor, "tokens"]
    queries: list[int]
    by_query: Float[Tensor, "queries"]


def strongest_looks(
    matrices: Sequence[EffectMatrix | None],
    by_head: Float[Tensor, "layers heads passages"],
    passages: Sequence[range],
) -> list[list[HeadLooks]]:
    """Return how the strongest heads of each passage look at it, the strongest first.

    Args:
        matrices: the effects of each layer, [heads, length, length]; those whose sums are known, so
            that what they keep of each row is not computed again.
        by_head: the effect of each passage through each head.
        passages: the tokens of each passage.
    """
    num_heads = by_head.shape[1]
    found: list[list[HeadLooks]] = []
    for tokens, effects in zip(passages, by_head.flatten(0, 1).T, strict=True):
        sizes, places = effects.abs().topk(min(HEADS, len(effects)))
        heads = [divmod(place, num_heads) for place in places[sizes > 0].tolist()]
        found.append([_looks(matrices[layer], layer, head, tokens) for layer, head in heads])
    return found


def _looks(matrix: EffectMatrix | None, layer: int, head: int, tokens: range) -> HeadLooks:
    assert matrix is not None, "a head without a gradient has no effects"
    # A decoder: nobody looks at a passage before it is there.
    effects = matrix[head, tokens.stop :, tokens.start : tokens.stop]
    num_queries, num_keys = effects.shape
    step = max(1, _PAIRS // num_keys)
    rows = (effects[start : start + step].dense() for start in range(0, num_queries, step))
    sums = [(some.sum(dim=0), some.sum(dim=1)) for some in rows]
    by_key = sum((each for each, _ in sums), torch.zeros(num_keys, device=effects.device))
    by_query = torch.cat([torch.zeros(0, device=effects.device), *(each for _, each in sums)])
    strongest = by_query.abs().topk(min(QUERIES, num_queries)).indices
    queries = (tokens.stop + strongest).tolist()
    return HeadLooks(layer, head, by_key.cpu(), queries, by_query[strongest].cpu())
