"""Token embeddings."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import check_positive
from regard.models.stack import STD, PositionEncoding
from regard.positions import Learned, sinusoidal


class TokenEmbedding(nn.Module):
    """The sum of token, position and type embeddings.

    Args:
        vocabulary_size: size of the vocabulary.
        model_dim: size of the vectors.
        position_encoding: "learned" and "sinusoidal" are added here; others are not.
        num_positions: number of learned positions.
        num_types: number of token types, as in BERT; 0 for none.
    """

    def __init__(
        self,
        vocabulary_size: int,
        model_dim: int,
        *,
        position_encoding: PositionEncoding,
        num_positions: int,
        num_types: int = 0,
    ) -> None:
        super().__init__()
        check_positive(vocabulary_size=vocabulary_size)
        if num_types < 0:
            raise ValueError(f"num_types must be at least 0, got {num_types}")
        self.tokens = nn.Embedding(vocabulary_size, model_dim)
        self.types = nn.Embedding(num_types, model_dim) if num_types else None
        self.positions = (
            Learned(num_positions, model_dim) if position_encoding == "learned" else None
        )
        self.sinusoidal = position_encoding == "sinusoidal"
        for table in filter(None, (self.tokens, self.types)):
            nn.init.normal_(table.weight, std=STD)

    def forward(
        self,
        tokens: Int[Tensor, "batch sequence"],
        *,
        types: Int[Tensor, "batch sequence"] | None = None,
        offset: int = 0,
        starts: Int[Tensor, "batch"] | None = None,
    ) -> Float[Tensor, "batch sequence model_dim"]:
        """Return the embeddings, [batch, sequence, model_dim].

        Args:
            tokens: token ids, [batch, sequence].
            types: type of each token, [batch, sequence]; 0 by default.
            offset: number of earlier tokens.
            starts: first real position of each sequence, [batch], with left padding.

        Raises:
            ValueError: `types` are given to a model without types.
        """
        x = self.tokens(tokens)
        if self.types is not None:
            x = x + self.types(torch.zeros_like(tokens) if types is None else types)
        elif types is not None:
            raise ValueError("types must be None: the model has no token types")

        positions = torch.arange(offset, offset + tokens.shape[1], device=tokens.device)
        if starts is not None:
            positions = (positions - starts.to(positions.device)[:, None]).clamp(min=0)
        if self.positions is not None:
            x = x + self.positions(positions)
        if self.sinusoidal:
            x = x + sinusoidal(positions, x.shape[-1], dtype=x.dtype)
        return x
