"""The allowed keys of a few queries, as in a step of generation."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.patterns.layout_cache import cached
from regard.patterns.pattern import Pattern

FEW = 16
"""Up to this many queries get a dense mask instead of a layout."""

_WORTH_COPYING = 4
"""Keys are gathered if at most one in this many is allowed."""


class Few(NamedTuple):
    """The allowed keys of a few queries.

    Attributes:
        keys: a slice from the first allowed key to the last; or the allowed keys, if they are few.
        mask: which of these each query may attend to; None if all.
    """

    keys: slice | Int[Tensor, "some_keys"]
    mask: Bool[Tensor, "batch_or_1 queries some_keys"] | None


def few(
    pattern: Pattern, first_position: int, num_queries: int, num_keys: int, device: torch.device
) -> Few:
    """Return the allowed keys of a few consecutive queries, cached for the layers of a model."""
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
    """Return a dense mask, sliced from a cached one that serves several steps if possible."""
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
