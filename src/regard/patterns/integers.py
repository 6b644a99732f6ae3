"""Integers: conversion of arguments, values of tensors, minima and maxima of ranges."""

from collections.abc import Callable
from operator import index
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.internals import in_functorch


def is_whole(tensor: Tensor) -> bool:
    """Whether a tensor has an integer dtype, not bool."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def is_consecutive(numbers: Int[Tensor, "numbers"]) -> bool:
    """Return whether each number is 1 more than the one before."""
    return bool((numbers.diff() == 1).all())


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


def to_list(tensor: Tensor) -> list[Any]:
    """Return the numbers of a tensor, also under `torch.func`, where torch 2.9's `tolist` fails."""
    if not in_functorch():
        return tensor.tolist()
    return [to_list(part) if part.dim() else part.item() for part in tensor.unbind()]


class RangeExtrema:
    """Range minimum and maximum in constant time.

    A sparse table of the minima and maxima of spans of 1, 2, 4, … values: n · log₂ n of each. Any
    range is the union of two such spans, which may overlap.
    """

    def __init__(self, smallest: Int[Tensor, "n"], largest: Int[Tensor, "n"]) -> None:
        self._smallest = _doubled(smallest, torch.minimum)
        self._largest = _doubled(largest, torch.maximum)

    def __call__(
        self, first: Int[Tensor, "..."], last: Int[Tensor, "..."]
    ) -> tuple[Int[Tensor, "..."], Int[Tensor, "..."]]:
        """Return the minimum and maximum from index `first` to `last`, both included."""
        level = torch.frexp((last - first + 1).double()).exponent.long() - 1
        second = last + 1 - torch.bitwise_left_shift(torch.ones_like(level), level)
        return (
            torch.minimum(self._smallest[level, first], self._smallest[level, second]),
            torch.maximum(self._largest[level, first], self._largest[level, second]),
        )


def _doubled(values: Tensor, join: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return a row for each level: at [k, i] the values from i to i + 2^k − 1, joined."""
    rows, width = [values], 1
    while 2 * width <= len(values):
        longer = rows[-1].clone()
        longer[:-width] = join(rows[-1][:-width], rows[-1][width:])
        rows.append(longer)
        width *= 2
    return torch.stack(rows)
