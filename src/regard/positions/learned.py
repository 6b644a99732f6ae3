"""A learned vector for each position, added to embeddings."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import check_positive


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
