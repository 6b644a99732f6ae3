"""Estimated cost of a call on the CPU.

Costs are nanoseconds of one thread, measured on one machine. Only their ratios matter;
`python -m benchmarks.masks` compares the resulting choices with measured times.
"""

import torch

from regard.attention.inputs import AttentionInputs
from regard.patterns import Layout
from regard.patterns.dense_keys import MAX_DENSE_QUERIES
from regard.patterns.from_mask import FromMask
from regard.patterns.layout import WRITTEN_PAIRS
from regard.patterns.layout_cache import compares_by_value
from regard.patterns.neighbours import Neighbours
from regard.patterns.pattern import Everyone

CALL = 0.8e6
"""A strip: prepare rows and mask, call one kernel, join its result."""

_PAIR, _NUMBER = 1.4, 0.02
"""A pair of one head, and each feature of its query, key and value."""

_GATHERED = 2.2
"""A gathered feature of a key or value."""

_MASKED, _TESTED = 1.5, 15.0
"""A pair whose mask is a tensor, and a pair whose mask the pattern computes."""

_BIASED = 6.0
"""A pair of one head with a bias."""

_LAYOUT, _LOOKED_AT = 4e6, 8.0
"""A layout, and each pair of a mask or graph that it reads."""


def of_all_pairs(inputs: AttentionInputs) -> float:
    """Return the cost of all pairs under a dense mask, in nanoseconds."""
    pairs = inputs.num_queries * inputs.num_keys
    sequences = 0 if isinstance(inputs.pattern, Everyone) else inputs.pattern.batch_size or 1
    return pairs * (inputs.batch * _per_pair(inputs) + sequences * _MASKED) / _threads()


def of_blocks_at_least(inputs: AttentionInputs) -> float:
    """Return a lower bound of `of_blocks` that needs no layout.

    It may exceed the cost of all pairs: for a graph with many edges, whose keys are gathered, or
    for a mask that changes in every step.
    """
    cost = _of_layout(inputs)
    for leaf in inputs.pattern.leaves():
        if isinstance(leaf, Neighbours):
            rows = len(leaf.edges) * inputs.batch * inputs.key.shape[1]
            cost += rows * _width(inputs) * _GATHERED / _threads()
    if isinstance(inputs.pattern, FromMask):
        cost += inputs.pattern.share_of_blocks * of_all_pairs(inputs)
    return cost


def _of_layout(inputs: AttentionInputs) -> float:
    """Return the cost of a layout; 0 for patterns whose layout is cached."""
    leaves = list(inputs.pattern.leaves())
    if inputs.num_queries <= MAX_DENSE_QUERIES:
        # Generation: the next step has one key more, so the layout is not reused.
        return _LAYOUT
    if inputs.first_position is not None and all(map(compares_by_value, leaves)):
        return 0.0
    pairs = sum(leaf.mask.numel() for leaf in leaves if isinstance(leaf, FromMask))
    return _LAYOUT + _LOOKED_AT * pairs


def of_blocks(inputs: AttentionInputs, layout: Layout) -> float:
    """Return the cost of the strips of a layout, in nanoseconds."""
    computed, overhead = 0.0, _of_layout(inputs)
    for strip in layout.unwritten:
        sequences = inputs.batch if strip.batch is None else 1
        per_pair = _per_pair(inputs)
        if strip.pattern is not None:
            written = strip.num_pairs <= WRITTEN_PAIRS
            per_pair += _MASKED if written else _TESTED
        elif strip.mask is not None:
            per_pair += _MASKED / strip.num_rectangles
        computed += sequences * strip.num_pairs * per_pair
        if strip.keys.pitch is None:
            rows = strip.num_rectangles * strip.keys.count * inputs.key.shape[1]
            computed += sequences * rows * _width(inputs) * _GATHERED
        overhead += sequences * CALL
    return computed / _threads() + overhead


def _per_pair(inputs: AttentionInputs) -> float:
    """Return the cost of a query–key pair in all heads of one sequence."""
    per_head = _PAIR + _NUMBER * _width(inputs)
    heads = inputs.bias.num_heads or 1 if inputs.bias is not None else 0
    share = (inputs.bias.batch_size or 1) / inputs.batch if inputs.bias is not None else 0
    return inputs.num_heads * per_head + heads * share * _BIASED


def _width(inputs: AttentionInputs) -> int:
    return inputs.key.shape[-1] + inputs.value.shape[-1]


def _threads() -> int:
    return torch.get_num_threads()
