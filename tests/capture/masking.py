"""Masks to be read, and what they must allow."""

import torch
from torch import Tensor

from regard.capture.masks import ParsedMask, Sizes

HEADS = 3


def added(allowed: Tensor, lowest: float, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(allowed.shape, dtype=dtype).masked_fill(~allowed, lowest)


def assert_allows(parsed: ParsedMask, allowed: Tensor, sizes: Sizes) -> None:
    """Assert that a mask is a pattern, and that it allows these pairs, [batch or 1, q, k]."""
    assert parsed.bias is None
    queries = torch.arange(parsed.first_query, parsed.first_query + sizes.queries)
    found = parsed.pattern.allows(queries, torch.arange(sizes.keys))
    shape = (sizes.batch, sizes.queries, sizes.keys)
    assert torch.equal(found.expand(shape), allowed.expand(shape)), parsed.pattern


def scattered(seed: int, *shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5
