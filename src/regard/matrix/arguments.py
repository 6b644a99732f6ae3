"""Argument checks."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.patterns.integers import whole_numbers

_ROUNDING = 1e-3
"""Tolerance of weights below 0 or above 1."""


def check_given(
    name: str, tensor: Tensor | None, device: torch.device, shape: tuple[int, ...]
) -> None:
    """Check a tensor against the queries, on their device.

    Raises:
        TypeError: it is not a tensor.
        ValueError: its dtype, shape or device is wrong.
    """
    if tensor is None:
        return
    if not isinstance(tensor, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
    if not tensor.is_floating_point() or tuple(tensor.shape) != shape:
        raise ValueError(
            f"{name} must be a floating-point tensor of shape {list(shape)}, "
            f"got {tensor.dtype} of shape {list(tensor.shape)}"
        )
    if tensor.device != device:
        raise ValueError(f"{name} must be on the device of query ({device}), got {tensor.device}")


def check_weights(weights: Tensor) -> None:
    """Check the dtype and the axes of weights.

    Raises:
        TypeError: they are not a tensor.
        ValueError: they are not floating-point, [batch, heads, queries, keys] or [queries, keys].
    """
    if not isinstance(weights, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"weights must be a tensor, got {type(weights).__name__}")
    if weights.dim() not in (2, 4) or not weights.is_floating_point():
        raise ValueError(
            "weights must be a floating-point tensor [batch, heads, queries, keys] or "
            "[queries, keys], "
            f"got {weights.dtype} of shape {list(weights.shape)}"
        )


def check_range(weights: Float[Tensor, "batch heads queries keys"]) -> None:
    """Check that weights are from 0 to 1 or NaN.

    Raises:
        ValueError: a weight is outside by more than rounding.
    """
    if not weights.numel():
        return
    low, high = (bound.item() for bound in weights.aminmax())
    if math.isnan(low):
        known = weights[~weights.isnan()]
        if not len(known):
            return
        low, high = (bound.item() for bound in known.aminmax())
    if low < -_ROUNDING or high > 1.0 + _ROUNDING:
        raise ValueError(
            f"weights must be from 0 to 1, got {low:.4g} to {high:.4g}: take the softmax of "
            "scores first; for weights after dropout, call model.eval(), or pass check=False"
        )


def checked_indices(
    indices: Sequence[int] | Tensor, argument: str, size: int, axis: str
) -> Int[Tensor, "places"]:
    """Return a list of indices of an axis as a tensor on the CPU, counted from the start.

    Raises:
        TypeError: they are not a list of integers.
        IndexError: one is out of range.
    """
    numbers = whole_numbers(indices)
    if numbers is None or numbers.dim() != 1:
        raise TypeError(f"{argument} must be a list of integers, got {indices!r}")
    numbers = numbers.cpu()
    outside = numbers[(numbers < -size) | (numbers >= size)]
    if len(outside):
        raise IndexError(f"there are {size} {axis}, counted from 0, got index {int(outside[0])}")
    return numbers % max(1, size)
