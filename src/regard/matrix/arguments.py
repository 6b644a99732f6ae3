"""What users hand over, checked: every message names the argument, the rule and the value."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

_ROUNDING = 1e-3
"""So far below 0 or above 1 a weight may lie, by rounding."""


def check_given(name: str, tensor: Tensor | None, query: Tensor, shape: tuple[int, ...]) -> None:
    """Check what may be handed over beside queries and keys.

    Raises:
        TypeError: it is no tensor.
        ValueError: it has another type or shape, or lies elsewhere than the queries.
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
            f"{name} must lie on the device of query ({query.device}), got {tensor.device}"
        )


def check_weights(weights: Tensor) -> None:
    """Check that weights can be a matrix.

    Raises:
        TypeError: they are no tensor.
        ValueError: they have another type, or other axes than [batch, heads, queries, keys].
    """
    if not isinstance(weights, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"weights must be a tensor, got {type(weights).__name__}")
    if weights.dim() != 4 or not weights.is_floating_point():
        raise ValueError(
            "weights must be a floating-point tensor [batch, heads, queries, keys], "
            f"got {weights.dtype} of shape {list(weights.shape)}"
        )


def check_range(weights: Float[Tensor, "batch heads queries keys"]) -> None:
    """Check that weights lie from 0 to 1; those that are NaN may stay so.

    Raises:
        ValueError: one lies further outside than rounding explains.
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
            f"weights must lie from 0 to 1, got {low:.4g} to {high:.4g}: take the softmax of "
            "scores first; for weights that dropout has scaled up, run the model after "
            "model.eval(), or pass check=False"
        )


def detached(tensor: Tensor, *, copy: bool = False) -> Tensor:
    """Return a tensor without its graph, or a copy if asked for or if it is one of inference mode.

    What is written to tensors of inference mode isn't counted.
    """
    tensor = tensor.detach()
    if not copy and not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        return tensor.clone()
