"""Masks to be read, and what they must allow."""

import torch
from torch import Tensor

from regard.capture.masks import Meaning, Sizes

HEADS = 3


def added(allowed: Tensor, lowest: float, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(allowed.shape, dtype=dtype).masked_fill(~allowed, lowest)


def assert_allows(meaning: Meaning, allowed: Tensor, sizes: Sizes) -> None:
    """Assert that a meaning is a pattern, and that it allows these pairs, [batch or 1, q, k]."""
    assert meaning.bias is None
    queries = torch.arange(meaning.first_query, meaning.first_query + sizes.queries)
    found = meaning.pattern.allows(queries, torch.arange(sizes.keys))
    shape = (sizes.batch, sizes.queries, sizes.keys)
    assert torch.equal(found.expand(shape), allowed.expand(shape)), meaning.pattern


def scattered(seed: int, *shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5
