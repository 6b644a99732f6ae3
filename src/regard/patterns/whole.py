"""Whole numbers that a user hands over."""

import torch
from jaxtyping import Int
from torch import Tensor


def is_whole(tensor: Tensor) -> bool:
    """Whether a tensor holds whole numbers; truth values are none."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def whole_numbers(values: object) -> Int[Tensor, "..."] | None:
    """Return a copy of the values as int64, or None if they aren't whole numbers."""
    if isinstance(values, list | tuple | range) and not len(values):
        return torch.zeros(0, dtype=torch.long)
    tensor = torch.as_tensor(values)
    return tensor.detach().to(torch.long, copy=True) if is_whole(tensor) else None
