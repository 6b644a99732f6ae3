"""A transformer that reads text: BERT's shape."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.matrix import AttentionMatrix
from regard.models.embedding import TokenEmbedding
from regard.models.order import PositionEncoding
from regard.models.stack import Stack
from regard.models.weights import bert, loaded
from regard.patterns import Pattern
from regard.patterns.narrowed import narrowed


class TextEncoder(nn.Module):
    """Turn tokens into vectors that depend on all tokens around them (Devlin et al., 2019).

    Attention is bidirectional: what is masked in BERT's training is tokens, not attention.

    Args:
        vocabulary_size: number of different tokens.
        model_dim: size of the vectors.
        num_layers: number of blocks.
        num_heads: number of heads of a block.
        hidden_dim: size of the hidden layer of a block; 4 · model_dim by default, and 0 for blocks
            of attention alone.
        position_encoding: how the model is told the order of its tokens: "learned", "sinusoidal",
            "rotary", "alibi", "relative", a `Rotary` or a `Bias`; with None it isn't, and a
            permutation of the tokens permutes the vectors, nothing else.
        num_positions: the longest sequence, if positions are learned.
        num_types: number of token types; 0 for none.
        activation: the activation of the hidden layer, as in `FeedForward`.
        norm_eps: what is added to a variance before it divides.
        pattern: who may look at whom; everyone at everyone by default.
        dropout: the share that is dropped in training, of embeddings and of what blocks add.
        attention_dropout: the share of attention weights that is dropped in training.

    Raises:
        ValueError: sizes don't fit together, or there is no choice of that name.

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
        self.layers = Stack(
            num_layers,
            model_dim,
            num_heads,
            hidden_dim=hidden_dim,
            activation=activation,
            norm_eps=norm_eps,
            norm_first=False,
            position_encoding=position_encoding,
            dropout=dropout,
            attention_dropout=attention_dropout,
        )
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
            model: a `BertModel`, or a model with a head on one. The head and the pooler are left
                out.

        Raises:
            ValueError: the model is of another kind, or has something that this class has not.
        """
        return loaded(cls, model, {"bert": bert})

    def embed(
        self,
        tokens: Int[Tensor, "batch sequence"],
        *,
        types: Int[Tensor, "batch sequence"] | None = None,
    ) -> Float[Tensor, "batch sequence model_dim"]:
        """Return the vectors that enter the first block: token, position and type, normed."""
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
            types: the type of each token, [batch, sequence]; 0 by default.
            pattern: who may look at whom in this call: `padding(lengths)`, say.
        """
        x = self.embed(tokens, types=types)
        return self.layers(x, pattern=narrowed(self.pattern, pattern))

    def states(
        self,
        tokens: Int[Tensor, "batch sequence"],
        *,
        types: Int[Tensor, "batch sequence"] | None = None,
        pattern: Pattern | None = None,
    ) -> list[Float[Tensor, "batch sequence model_dim"]]:
        """Return the embeddings and what each block made of them; arguments as for `forward`."""
        x = self.embed(tokens, types=types)
        return self.layers.states(x, pattern=narrowed(self.pattern, pattern))

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
        return self.layers.matrices(x, pattern=narrowed(self.pattern, pattern))
