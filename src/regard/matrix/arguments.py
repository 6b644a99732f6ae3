"""Argument checks."""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.matrix.source import lowest
from regard.patterns.integers import whole_numbers
from regard.positions import Bias
from regard.positions.bias import ComposedBias, compose
from regard.positions.from_tensor import FromTensor

_ROUNDING = 1e-3
"""Tolerance of weights below 0 or above 1."""


def check_given(name: str, tensor: Tensor | None, query: Tensor, shape: tuple[int, ...]) -> None:
    """Check a tensor against the queries.

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
    if tensor.device != query.device:
        raise ValueError(
            f"{name} must be on the device of query ({query.device}), got {tensor.device}"
        )


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


def detached(tensor: Tensor, *, copy: bool = False) -> Tensor:
    """Detach a tensor; copy it if `copy`, or if it is an inference tensor (no version counter)."""
    tensor = tensor.detach()
    if not copy and not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        return tensor.clone()


def detached_bias(bias: Bias | None, dtype: torch.dtype) -> Bias | None:
    """Copy the parts of a bias that have inference tensors (no version counter), or other masks.

    Args:
        bias: the bias.
        dtype: the dtype of the queries. In wider scores, the lowest number of float16 would be a
            score like others: it becomes −inf.
    """
    if isinstance(bias, ComposedBias):
        return compose(detached_bias(bias.first, dtype), detached_bias(bias.second, dtype))
    if isinstance(bias, FromTensor):
        values = bias.values.detach()
        smallest = torch.finfo(values.dtype).min
        if smallest > lowest(torch.promote_types(dtype, torch.float32)) and bool(
            (masked := values == smallest).any()
        ):
            with torch.inference_mode(False):
                return replace(bias, values=values.masked_fill(masked, -torch.inf))
    if bias is None or not any(tensor.is_inference() for tensor in bias.tensors):
        return bias
    with torch.inference_mode(False):
        return copy.deepcopy(bias)
