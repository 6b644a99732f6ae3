"""The allowed keys of a few queries, as in a step of generation, by their dense mask."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.patterns.layout_cache import cached
from regard.patterns.pattern import DenseMask, Pattern

MAX_DENSE_QUERIES = 16
"""Up to this many queries get a dense mask instead of a layout."""

_WORTH_COPYING = 6
"""Keys are gathered if at most one in this many is allowed.

One thread, one query with 4 heads of 64 and 4,096 keys: a slice with a mask takes 0.54 ms; to
gather one in 3, 4, 6 and 8 of them 0.93, 0.71, 0.45 and 0.35.
"""


class DenseKeys(NamedTuple):
    """The allowed keys of a few queries.

    Attributes:
        keys: a slice from the first allowed key to the last; or the allowed keys, if they are few.
        mask: which of these each query may attend to; None if all.
    """

    keys: slice | Int[Tensor, "some_keys"]
    mask: Bool[Tensor, "batch_or_1 queries some_keys"] | None


def dense_keys(
    pattern: Pattern, first_position: int, num_queries: int, num_keys: int, device: torch.device
) -> DenseKeys:
    """Return the allowed keys of a few consecutive queries, cached for the layers of a model."""

    def make() -> DenseKeys:
        # 1. Find the keys that any query may attend to.
        mask = _mask(pattern, first_position, num_queries, num_keys)
        allowed = mask.flatten(0, 1).any(dim=0).nonzero().flatten()
        first, last = (int(allowed[0]), int(allowed[-1])) if len(allowed) else (0, 0)

        # 2. Slice them, which copies nothing, unless that reads many more keys.
        is_sparse = 0 < len(allowed) * _WORTH_COPYING <= last + 1 - first
        keys = allowed if is_sparse else slice(first, last + 1)
        mask = mask[..., keys]

        keys_on_device = keys if isinstance(keys, slice) else keys.to(device)
        return DenseKeys(keys_on_device, None if bool(mask.all()) else mask.to(device))

    return cached(pattern, ("dense keys", first_position, num_queries, num_keys, device), make)


def _mask(pattern: Pattern, first_position: int, num_queries: int, num_keys: int) -> DenseMask:
    """Return a dense mask, sliced from a cached one that serves several steps if possible."""
    stop = first_position + num_queries
    start = first_position - first_position % MAX_DENSE_QUERIES
    # A pattern of so many positions has no mask of the steps beyond.
    is_bounded = any(leaf.num_positions is not None for leaf in pattern.leaves())
    if is_bounded or stop != num_keys or stop > start + MAX_DENSE_QUERIES:
        return pattern.dense(_positions(first_position, stop), num_keys)

    end = start + MAX_DENSE_QUERIES
    steps = cached(pattern, ("steps", start), lambda: pattern.dense(_positions(start, end), end))
    return steps[:, first_position - start : stop - start, :num_keys]


def _positions(start: int, stop: int) -> Int[Tensor, "queries"]:
    return torch.arange(start, stop, device="cpu")
