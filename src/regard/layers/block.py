"""The transformer block."""

from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import check_share
from regard.layers.cache import KeyValueCache
from regard.layers.feed_forward import FeedForward
from regard.layers.multi_head_attention import MultiHeadAttention
from regard.matrix import AttentionMatrix
from regard.patterns import Pattern


class TransformerBlock(nn.Module):
    """Attention and feed-forward layer with residual connections.

        norm_first:     x = x + attention(norm(x))        x = x + feed_forward(norm(x))
        otherwise:      x = norm(x + attention(x))        x = norm(x + feed_forward(x))

    GPT-2, Llama and ViT norm first; the original transformer and BERT norm afterwards.

    Args:
        attention: the attention layer.
        feed_forward: the feed-forward layer; None for attention alone.
        attention_norm: norm of the attention layer, such as `nn.LayerNorm`.
        feed_forward_norm: norm of the feed-forward layer; None without one.
        norm_first: which of the two forms.
        dropout: dropout probability of the residual branches.

    Raises:
        ValueError: feed_forward is given without feed_forward_norm, or the reverse.
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        feed_forward: FeedForward | None,
        attention_norm: nn.Module,
        feed_forward_norm: nn.Module | None,
        *,
        norm_first: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if (feed_forward is None) != (feed_forward_norm is None):
            raise ValueError("feed_forward and feed_forward_norm must both be given, or both None")
        check_share("dropout", dropout)
        self.attention, self.feed_forward = attention, feed_forward
        self.attention_norm, self.feed_forward_norm = attention_norm, feed_forward_norm
        self.norm_first = norm_first
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "batch sequence model_dim"],
        *,
        pattern: Pattern | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch sequence model_dim"]:
        """Return the output of the block, [batch, sequence, model_dim].

        Args:
            x: [batch, sequence, model_dim].
            pattern: combined with the layer's pattern by `&`.
            cache: keys and values of earlier tokens; those of `x` are appended.
        """
        x = x + self.dropout(self.attention(self._attention_input(x), pattern=pattern, cache=cache))
        x = x if self.norm_first else self.attention_norm(x)
        if self.feed_forward is None or self.feed_forward_norm is None:
            return x
        if self.norm_first:
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))

    def matrix(
        self,
        x: Float[Tensor, "batch sequence model_dim"],
        *,
        pattern: Pattern | None = None,
        cache: KeyValueCache | None = None,
    ) -> AttentionMatrix:
        """Return the attention matrix of the block, [batch, heads, sequence, keys].

        Args: as for `forward`; the cache is not changed.
        """
        return self.attention.matrix(self._attention_input(x), pattern=pattern, cache=cache)

    def _attention_input(self, x: Tensor) -> Tensor:
        return self.attention_norm(x) if self.norm_first else x
