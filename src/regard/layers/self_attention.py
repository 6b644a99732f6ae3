"""Self-attention with one head."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import attend
from regard.errors import check_positive
from regard.matrix import AttentionMatrix
from regard.patterns import Pattern
from regard.patterns.pattern import intersect


class SelfAttention(nn.Module):
    """Self-attention with one head, as in the textbook formula.

        Q = X W_Q      K = X W_K      V = X W_V
        A = softmax(Q Kᵀ / √key_dim)
        Y = A V

    W_Q and W_K are [model_dim, key_dim], W_V is [model_dim, value_dim]; W_Q is
    `layer.query.weight.T`. There are no output projection and no biases; `MultiHeadAttention` has
    both.

    Args:
        model_dim: input size.
        key_dim: size of queries and keys; `model_dim` by default.
        value_dim: size of values and of the output; `key_dim` by default.
        pattern: which keys each query may attend to; all by default.

    Raises:
        ValueError: a size is not positive.

    >>> import torch
    >>> layer = SelfAttention(model_dim=6, key_dim=3, value_dim=4)
    >>> x = torch.randn(1, 10, 6)
    >>> layer(x).shape
    torch.Size([1, 10, 4])
    >>> layer.matrix(x)
    AttentionMatrix(1 batch × 1 heads × 10 queries × 10 keys, float32, everyone())
    """

    def __init__(
        self,
        model_dim: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        *,
        pattern: Pattern | None = None,
    ) -> None:
        super().__init__()
        key_dim = model_dim if key_dim is None else key_dim
        value_dim = key_dim if value_dim is None else value_dim
        check_positive(model_dim=model_dim, key_dim=key_dim, value_dim=value_dim)
        self.query = nn.Linear(model_dim, key_dim, bias=False)
        self.key = nn.Linear(model_dim, key_dim, bias=False)
        self.value = nn.Linear(model_dim, value_dim, bias=False)
        self.pattern = pattern
        for projection in (self.query, self.key, self.value):
            nn.init.xavier_uniform_(projection.weight)

    @property
    def bilinear(self) -> Float[Tensor, "model_dim model_dim"]:
        """The matrix W = W_Q W_Kᵀ / √key_dim of the scores S = X W Xᵀ; its rank is `key_dim`."""
        return self.query.weight.T @ self.key.weight / math.sqrt(self.query.out_features)

    def forward(
        self, x: Float[Tensor, "batch sequence model_dim"], *, pattern: Pattern | None = None
    ) -> Float[Tensor, "batch sequence value_dim"]:
        """Return the weighted sums of values, [batch, sequence, value_dim].

        Args:
            x: [batch, sequence, model_dim].
            pattern: combined with the layer's pattern by `&`, such as padding.
        """
        query, key, value = (part(x)[:, None] for part in (self.query, self.key, self.value))
        return attend(query, key, value, pattern=intersect(self.pattern, pattern))[:, 0]

    @torch.no_grad()
    def matrix(
        self, x: Float[Tensor, "batch sequence model_dim"], *, pattern: Pattern | None = None
    ) -> AttentionMatrix:
        """Return the attention matrix, [batch, 1, sequence, sequence].

        Args: as for `forward`.
        """
        query, key = self.query(x)[:, None], self.key(x)[:, None]
        return AttentionMatrix(query, key, pattern=intersect(self.pattern, pattern))
