"""Sinusoidal position encodings."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def sinusoidal(
    positions: int | Int[Tensor, "..."],
    dim: int,
    *,
    base: float = 10_000.0,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "... {dim}"]:
    """Encode positions as sines and cosines (Vaswani et al., 2017).

        encoding[p, 2i]     = sin(p / base^(2i / dim))
        encoding[p, 2i + 1] = cos(p / base^(2i / dim))

    Computed in float64 and rounded once.

    Args:
        positions: number of positions, from 0 on, or an integer tensor [...] of positions.
        dim: size of the encoding, even.
        base: base of the frequencies; the longest period is nearly 2 pi * base.
        dtype: floating dtype of the result.

    Returns:
        The encodings [..., dim], on the device of `positions`.

    Raises:
        ValueError: if `dim` is not a positive even number, `base` is not positive, or `positions`
            is negative or not of integers.

    >>> sinusoidal(3, 4)
    tensor([[ 0.0000,  1.0000,  0.0000,  1.0000],
            [ 0.8415,  0.5403,  0.0100,  0.9999],
            [ 0.9093, -0.4161,  0.0200,  0.9998]])
    """
    if dim < 2 or dim % 2:
        raise ValueError(f"dim must be a positive even number, got {dim}")
    if not base > 0:
        raise ValueError(f"base must be positive, got {base}")
    if isinstance(positions, int):
        if positions < 0:
            raise ValueError(f"positions must be at least 0, got {positions}")
        positions = torch.arange(positions)
    if positions.is_floating_point() or positions.is_complex() or positions.dtype == torch.bool:
        raise ValueError(f"positions must be integers, got {positions.dtype}")
    exponents = torch.arange(0, dim, 2, dtype=torch.float64, device=positions.device) / dim
    angles = positions.to(torch.float64)[..., None] / base**exponents
    waves = torch.stack([angles.sin(), angles.cos()], dim=-1)
    return waves.flatten(start_dim=-2).to(dtype)
