"""What a few queries may look at, as in each step of a text that is being generated."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.patterns.layout_cache import cached
from regard.patterns.pattern import Pattern

FEW = 16
"""Queries for which a mask is written down without a look at what blocks it leaves empty."""

_WORTH_COPYING = 4
"""How many times as many keys are passed over as are copied, for that to be quicker."""


class Few(NamedTuple):
    """The keys that a few queries may look at.

    Attributes:
        keys: from the first key to the last one that any of them may look at; where most of those
            are looked at by none, the others one by one.
        mask: which of these each of them may look at; None if all may.
    """

    keys: slice | Int[Tensor, "some_keys"]
    mask: Bool[Tensor, "batch_or_1 queries some_keys"] | None


def few(
    pattern: Pattern, first_position: int, num_queries: int, num_keys: int, device: torch.device
) -> Few:
    """Return what a few queries that stand one after the other may look at.

    The layers of a model ask for the same, and get it from memory.
    """
    name = ("few", first_position, num_queries, num_keys, device)

    def make() -> Few:
        mask = _mask(pattern, first_position, num_queries, num_keys)
        seen = mask.flatten(0, 1).any(dim=0).nonzero()
        first, last = (int(seen[0]), int(seen[-1])) if len(seen) else (0, 0)
        apart = 0 < len(seen) * _WORTH_COPYING <= last + 1 - first
        keys = seen.flatten() if apart else slice(first, last + 1)
        mask = mask[..., keys]
        there = keys if isinstance(keys, slice) else keys.to(device)
        return Few(there, None if bool(mask.all()) else mask.to(device))

    return cached(pattern, name, make)


def _mask(
    pattern: Pattern, first_position: int, num_queries: int, num_keys: int
) -> Bool[Tensor, "batch_or_1 queries keys"]:
    """Write a mask down, or read it from one that was written down for the next steps too."""
    stop = first_position + num_queries
    start = first_position - first_position % FEW
    bounded = any(leaf.num_positions is not None for leaf in pattern.leaves())
    if bounded or stop != num_keys or stop > start + FEW:
        return pattern.dense(_positions(first_position, stop), num_keys)
    steps = cached(
        pattern,
        ("steps", start),
        lambda: pattern.dense(_positions(start, start + FEW), start + FEW),
    )
    return steps[:, first_position - start : stop - start, :num_keys]


def _positions(start: int, stop: int) -> Int[Tensor, "queries"]:
    return torch.arange(start, stop, device="cpu")
