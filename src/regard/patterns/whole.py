"""Conversion of arguments to integers."""

from operator import index
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor


def is_whole(tensor: Tensor) -> bool:
    """Whether a tensor has an integer dtype, not bool."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def as_tensor(values: Any) -> Tensor:
    """Return values as a tensor; new ones are on the CPU, whatever torch's default device."""
    return values if isinstance(values, Tensor) else torch.as_tensor(values, device="cpu")


def whole_numbers(values: object) -> Int[Tensor, "..."] | None:
    """Return a copy of the values as int64, or None if they aren't integers."""
    if isinstance(values, list | tuple | range) and not len(values):
        return torch.zeros(0, dtype=torch.long, device="cpu")
    tensor = as_tensor(values)
    return tensor.detach().to(torch.long, copy=True) if is_whole(tensor) else None


def whole_number(name: str, value: Any, hint: str = "") -> int:
    """Return an int, or raise TypeError with a hint if the value is something else."""
    try:
        number = None if isinstance(value, bool) else index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name} must be an int, got {value!r}{hint}")
    return number
