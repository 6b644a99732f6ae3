"""Rotary position embeddings."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class Rotary(nn.Module):
    """Rotate queries and keys so that their products depend on distance only (Su et al., 2021).

    The first `dim` features of each vector are dim / 2 points in the plane; point i of the vector
    at position p is rotated by the angle p * f_i, with

        f_i = base^(-2i / dim),    i = 0, ..., dim / 2 - 1

    Angles are computed in float32 (float64 for a float64 input), even if the module is cast, and
    the result is rounded to the dtype of the input once.

    Args:
        dim: number of rotated features, even. The rest are unchanged.
        base: base of the frequencies; ignored if `frequencies` are given.
        frequencies: constants that replace the computed ones, for scaled variants, [dim / 2].
        interleaved: the features of point i: 2i and 2i + 1 if true (GPT-J), i and i + dim / 2 if
            false (Llama).

    Raises:
        ValueError: if `dim` is not a positive even number, `base` is not positive, or `frequencies`
            does not have the shape [dim / 2].

    >>> rotary = Rotary(2)
    >>> query = torch.tensor([1.0, 0.0]).expand(1, 1, 3, 2)
    >>> rotary(query)
    tensor([[[[ 1.0000,  0.0000],
              [ 0.5403,  0.8415],
              [-0.4161,  0.9093]]]])
    """

    frequencies: Tensor

    def __init__(
        self,
        dim: int,
        *,
        base: float = 10_000.0,
        frequencies: Float[Tensor, "..."] | None = None,
        interleaved: bool = False,
    ) -> None:
        super().__init__()
        if dim < 2 or dim % 2:
            raise ValueError(f"dim must be a positive even number, got {dim}")
        if not base > 0:
            raise ValueError(f"base must be positive, got {base}")
        if frequencies is not None and frequencies.shape != (dim // 2,):
            raise ValueError(
                f"frequencies must have the shape [dim / 2] = [{dim // 2}], "
                f"got {list(frequencies.shape)}"
            )

        self.dim = dim
        self.interleaved = interleaved
        # Floats, because casting the module would round the buffer.
        self._exact: tuple[float, ...]
        if frequencies is None:
            self._exact = tuple(base ** (-index / dim) for index in range(0, dim, 2))
            device = None
        else:
            self._exact = tuple(float(frequency) for frequency in frequencies.tolist())
            device = frequencies.device
        self.register_buffer("frequencies", self._tensor(torch.float32, device), persistent=False)

    def forward(
        self,
        x: Float[Tensor, "batch heads sequence head_dim"],
        positions: Int[Tensor, "sequence"] | Int[Tensor, "#batch sequence"] | None = None,
        *,
        offset: int = 0,
    ) -> Float[Tensor, "batch heads sequence head_dim"]:
        """Rotate queries or keys.

        Args:
            x: queries or keys, [batch, heads, sequence, head_dim] with head_dim at least `dim`.
            positions: integers [sequence] or [batch, sequence]; 0, 1, 2, ... by default.
            offset: added to the positions; with a cache, the number of cached tokens.

        Returns:
            The rotated vectors, in the shape and dtype of `x`.

        Raises:
            ValueError: if a shape does not fit, `positions` are not integers, or `offset` is
                negative.
        """
        # 1. Check the arguments.
        if x.ndim != 4:
            raise ValueError(
                f"x must have the shape [batch, heads, sequence, head_dim], got {list(x.shape)}"
            )
        if x.shape[-1] < self.dim:
            raise ValueError(
                f"x must have a head_dim of at least dim = {self.dim}, got {x.shape[-1]}"
            )
        if offset < 0:
            raise ValueError(f"offset must be at least 0, got {offset}")
        if positions is None:
            positions = torch.arange(x.shape[2], device=x.device)
        else:
            _check_positions(positions, batch=x.shape[0], sequence=x.shape[2])

        # 2. Compute the angles, in float32 at least.
        exact = torch.promote_types(x.dtype, torch.float32)
        turns = self.frequencies if exact == torch.float32 else self._tensor(exact, x.device)
        angles = (positions.to(torch.int64) + offset).to(exact)[..., None] * turns
        if angles.ndim == 3:  # [batch, sequence, i] needs an axis for the heads.
            angles = angles[:, None]
        cos, sin = angles.cos(), angles.sin()

        # 3. Rotate the points, and round once.
        points = x[..., : self.dim].to(exact)
        if self.interleaved:
            first, second = points[..., 0::2], points[..., 1::2]
        else:
            first, second = points.chunk(2, dim=-1)
        turned = (first * cos - second * sin, first * sin + second * cos)
        if self.interleaved:
            rotated = torch.stack(turned, dim=-1).flatten(start_dim=-2)
        else:
            rotated = torch.cat(turned, dim=-1)
        return torch.cat([rotated.to(x.dtype), x[..., self.dim :]], dim=-1)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, interleaved={self.interleaved}"

    def _tensor(self, dtype: torch.dtype, device: torch.device | None) -> Tensor:
        return torch.tensor(self._exact, dtype=dtype, device=device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Rotary":
        # Follow moves but not casts: frequencies in bfloat16 are wrong at large positions.
        super()._apply(fn, recurse)
        self.frequencies = self._tensor(torch.float32, self.frequencies.device)
        return self


def _check_positions(positions: Tensor, *, batch: int, sequence: int) -> None:
    if positions.is_floating_point() or positions.is_complex() or positions.dtype == torch.bool:
        raise ValueError(f"positions must be integers, got {positions.dtype}")
    if tuple(positions.shape) not in {(sequence,), (1, sequence), (batch, sequence)}:
        raise ValueError(
            f"positions must have the shape [sequence] = [{sequence}] or [batch, sequence] = "
            f"[{batch}, {sequence}], got {list(positions.shape)}"
        )
