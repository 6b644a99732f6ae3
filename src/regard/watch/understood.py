"""Interpret a captured call: pattern, positions and bias."""

from dataclasses import replace

from torch import Tensor

from regard.attention.inputs import AttentionInputs, autocasted, autocasts, checked_inputs
from regard.patterns.narrowed import narrowed
from regard.patterns.pattern import Everyone
from regard.positions import Bias, from_tensor
from regard.positions.joined import joined
from regard.watch.masks import Masks, Sizes
from regard.watch.raw_call import RawCall


def as_computed(caught: RawCall) -> RawCall:
    """Return a call with its tensors in autocast's dtype."""
    if not autocasts(caught.query.device):
        return caught
    query, key, value = autocasted(caught.query, caught.key, caught.value)
    return replace(caught, query=query, key=key, value=value)


def understood(caught: RawCall, masks: Masks, *, cross: bool) -> AttentionInputs:
    """Interpret a call; the returned values are its keys, as a placeholder.

    Args:
        caught: the call.
        masks: converts its mask.
        cross: whether it is known to be cross-attention.

    Raises:
        ValueError: it is not supported.
    """
    query, key = caught.query, caught.key
    batch, heads, queries, _ = query.shape
    sizes = Sizes(batch, heads, queries, key.shape[2])
    meaning = masks.read(caught.mask, sizes, cross=cross)
    positions = meaning.first_query if caught.first_query is None else caught.first_query
    added: Bias | None = None
    if caught.added is not None:
        first = positions
        if isinstance(first, Tensor):
            if not bool((first.diff() == 1).all()):
                raise ValueError("a score bias needs consecutive query positions")
            first = int(first[0])
        numbers = caught.added.detach().expand(-1, -1, sizes.queries, -1)[..., : sizes.keys]
        added = from_tensor(numbers, first_query=first)
    known = None if isinstance(meaning.pattern, Everyone) else meaning.pattern
    bias = joined(joined(caught.bias, added), meaning.bias)
    pattern = narrowed(known, caught.pattern)
    return checked_inputs(query, key, key, pattern, bias, caught.scale, 0.0, positions)
