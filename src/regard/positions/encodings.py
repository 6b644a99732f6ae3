"""Position encodings that are added to embeddings: computed, or learned."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import check_positive


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


class Learned(nn.Module):
    """A learned vector for each position, up to a fixed number.

    The table limits the context length, as in BERT and GPT-2. It is initialised like theirs, from a
    normal distribution with standard deviation 0.02.

    Args:
        num_positions: number of positions.
        dim: size of the vectors.

    Raises:
        ValueError: if `num_positions` or `dim` is not positive.

    >>> encoding = Learned(num_positions=512, dim=8)
    >>> encoding(torch.arange(5)).shape
    torch.Size([5, 8])
    """

    table: nn.Parameter

    def __init__(self, num_positions: int, dim: int) -> None:
        super().__init__()
        check_positive(num_positions=num_positions, dim=dim)
        self.table = nn.Parameter(torch.empty(num_positions, dim))
        nn.init.normal_(self.table, std=0.02)

    def forward(self, positions: Int[Tensor, "*positions"]) -> Float[Tensor, "*positions dim"]:
        """Return the vectors of positions, [..., dim].

        Args:
            positions: integer tensor of any shape.

        Raises:
            IndexError: if a position is not in the table.
        """
        # Reading values would cause a graph break; there the embedding itself fails.
        if not torch.compiler.is_compiling() and positions.numel():
            lowest, highest = (int(end) for end in torch.aminmax(positions))
            self._check(highest)
            self._check(lowest)
        return nn.functional.embedding(positions, self.table)

    def _check(self, position: int) -> None:
        num_positions = self.table.shape[0]
        if not 0 <= position < num_positions:
            raise IndexError(
                f"positions must be from 0 to {num_positions - 1}, got {position}: increase "
                "num_positions, or use an encoding without a table: sinusoidal, Rotary or alibi"
            )

    def extra_repr(self) -> str:
        num_positions, dim = self.table.shape
        return f"num_positions={num_positions}, dim={dim}"
