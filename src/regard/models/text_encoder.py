"""BERT."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.matrix import AttentionMatrix
from regard.models.embedding import TokenEmbedding
from regard.models.stack import PositionEncoding, Stack, StackConfig
from regard.models.weights import bert, convert
from regard.patterns import Pattern
from regard.patterns.pattern import intersect


class TextEncoder(nn.Module):
    """A bidirectional text encoder (Devlin et al., 2019).

    Args:
        vocabulary_size: size of the vocabulary.
        model_dim: size of the vectors.
        num_layers: number of blocks.
        num_heads: number of heads of a block.
        hidden_dim: hidden size of the feed-forward layer; 4 · model_dim by default, 0 for none.
        position_encoding: "learned", "sinusoidal", "rotary", "alibi", "relative", a `Rotary`, a
            `Bias`, or None for a model that is equivariant to permutations.
        num_positions: the longest sequence, if positions are learned.
        num_types: number of token types; 0 for none.
        activation: activation of the feed-forward layer; see `FeedForward`.
        norm_eps: epsilon of the norms.
        pattern: which keys each query may attend to; all by default.
        dropout: dropout probability of embeddings and residual branches.
        attention_dropout: dropout probability of attention weights.

    Raises:
        ValueError: sizes don't fit together, or a choice is unknown.

    >>> import torch, regard
    >>> encoder = TextEncoder(vocabulary_size=100, model_dim=32, num_layers=2, num_heads=4).eval()
    >>> tokens = torch.randint(100, (2, 7))
    >>> encoder(tokens, pattern=regard.padding([7, 5])).shape
    torch.Size([2, 7, 32])
    >>> encoder.matrices(tokens)[1][0, 3]
    AttentionMatrix(7 queries × 7 keys, float32, everyone())
    """

    def __init__(
        self,
        vocabulary_size: int,
        model_dim: int,
        num_layers: int,
        num_heads: int,
        *,
        hidden_dim: int | None = None,
        position_encoding: PositionEncoding = "learned",
        num_positions: int = 512,
        num_types: int = 0,
        activation: str = "gelu",
        norm_eps: float = 1e-12,
        pattern: Pattern | None = None,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        # 1. Blocks.
        config = StackConfig(
            num_layers=num_layers,
            model_dim=model_dim,
            num_heads=num_heads,
            hidden_dim=hidden_dim,
            activation=activation,
            norm_eps=norm_eps,
            norm_first=False,
            position_encoding=position_encoding,
            dropout=dropout,
            attention_dropout=attention_dropout,
        )
        self.layers = Stack(config)

        # 2. Embeddings.
        self.embedding = TokenEmbedding(
            vocabulary_size,
            model_dim,
            position_encoding=position_encoding,
            num_positions=num_positions,
            num_types=num_types,
        )
        self.norm = nn.LayerNorm(model_dim, eps=norm_eps)
        self.dropout = nn.Dropout(dropout)
        self.pattern = pattern

    @classmethod
    def from_transformers(cls, model: nn.Module) -> "TextEncoder":
        """Make an encoder with the weights of a BERT model of transformers.

        Args:
            model: a `BertModel`, with or without a head. Head and pooler are ignored.

        Raises:
            ValueError: the model has another type, a setting that this class doesn't support, or
                computes something else than its config says.
        """
        return convert(cls, model, {"bert": bert})

    def embed(
        self,
        tokens: Int[Tensor, "batch sequence"],
        *,
        types: Int[Tensor, "batch sequence"] | None = None,
    ) -> Float[Tensor, "batch sequence model_dim"]:
        """Return the input of the first block: token, position and type embeddings, normed."""
        return self.dropout(self.norm(self.embedding(tokens, types=types)))

    def forward(
        self,
        tokens: Int[Tensor, "batch sequence"],
        *,
        types: Int[Tensor, "batch sequence"] | None = None,
        pattern: Pattern | None = None,
    ) -> Float[Tensor, "batch sequence model_dim"]:
        """Return a vector for each token, [batch, sequence, model_dim].

        Args:
            tokens: token ids, [batch, sequence].
            types: type of each token, [batch, sequence]; 0 by default.
            pattern: combined with the model's pattern by `&`, such as `padding(lengths)`.
        """
        x = self.embed(tokens, types=types)
        return self.layers(x, pattern=intersect(self.pattern, pattern))

    def states(
        self,
        tokens: Int[Tensor, "batch sequence"],
        *,
        types: Int[Tensor, "batch sequence"] | None = None,
        pattern: Pattern | None = None,
    ) -> list[Float[Tensor, "batch sequence model_dim"]]:
        """Return the embeddings and the output of each block; arguments as for `forward`."""
        x = self.embed(tokens, types=types)
        return self.layers.states(x, pattern=intersect(self.pattern, pattern))

    @torch.no_grad()
    def matrices(
        self,
        tokens: Int[Tensor, "batch sequence"],
        *,
        types: Int[Tensor, "batch sequence"] | None = None,
        pattern: Pattern | None = None,
    ) -> list[AttentionMatrix]:
        """Return the attention matrix of each block; arguments as for `forward`."""
        x = self.embed(tokens, types=types)
        return self.layers.matrices(x, pattern=intersect(self.pattern, pattern))
