"""A learned vector for each position, added to embeddings."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import check_positive


class Learned(nn.Module):
    """Learn a vector for each position, up to a fixed number of them.

    The table is what fixes the context length of BERT and GPT-2: attention itself has no limit, but
    a position past the table has no vector. It starts normal with a standard deviation of 0.02, as
    in both.

    Args:
        num_positions: number of positions in the table.
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
        """Look up the vectors of positions.

        Args:
            positions: integer tensor of any shape.

        Returns:
            One vector for each position, in one more dimension.

        Raises:
            IndexError: if a position is not in the table.
        """
        # Reading the values would break a compiled graph in two; there the lookup itself fails.
        if not torch.compiler.is_compiling() and positions.numel():
            lowest, highest = (int(end) for end in torch.aminmax(positions))
            self._check(highest)
            self._check(lowest)
        return nn.functional.embedding(positions, self.table)

    def _check(self, position: int) -> None:
        num_positions = self.table.shape[0]
        if not 0 <= position < num_positions:
            raise IndexError(
                f"positions must be from 0 to {num_positions - 1}, got {position}: the table has "
                f"{num_positions} positions. Make it longer with num_positions, or use an encoding "
                "without a table: sinusoidal, Rotary or alibi"
            )

    def extra_repr(self) -> str:
        """Describe the module in its printed form."""
        num_positions, dim = self.table.shape
        return f"num_positions={num_positions}, dim={dim}"
