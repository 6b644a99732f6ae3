"""A stack of transformer blocks."""

import math
from collections.abc import Sequence
from itertools import pairwise, repeat
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import check_choice, check_positive
from regard.layers import FeedForward, KeyValueCache, MultiHeadAttention, TransformerBlock
from regard.matrix import AttentionMatrix
from regard.models.order import PositionEncoding, order
from regard.patterns import Pattern

STD = 0.02
"""The standard deviation of new weights."""

_NORMS = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}


class Stack(nn.ModuleList):
    """Equal transformer blocks, run in order.

    Args:
        num_layers: number of blocks.
        model_dim: size of the vectors.
        num_heads: number of query heads.
        num_key_heads: number of key heads; `num_heads` by default.
        key_dim: size of a head's queries, keys and values; model_dim // num_heads by default.
        hidden_dim: hidden size of the feed-forward layer; 4 · model_dim by default, 0 for none.
        activation: activation of the feed-forward layer; see `FeedForward`.
        norm: "layer" or "rms".
        norm_eps: epsilon of the norms.
        norm_first: see `TransformerBlock`.
        position_encoding: position encoding of attention.
        bidirectional: whether attention is bidirectional.
        projection_bias: whether linear layers have biases.
        dropout: dropout probability of the residual branches.
        attention_dropout: dropout probability of attention weights.
    """

    def __init__(
        self,
        num_layers: int,
        model_dim: int,
        num_heads: int,
        *,
        num_key_heads: int | None = None,
        key_dim: int | None = None,
        hidden_dim: int | None = None,
        activation: str = "gelu",
        norm: str = "layer",
        norm_eps: float = 1e-5,
        norm_first: bool = True,
        position_encoding: PositionEncoding = None,
        bidirectional: bool = True,
        projection_bias: bool = True,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_positive(num_layers=num_layers, model_dim=model_dim, num_heads=num_heads)
        encoding = order(
            position_encoding,
            num_heads=num_heads,
            key_dim=key_dim or model_dim // num_heads,
            bidirectional=bidirectional,
        )
        hidden_dim = 4 * model_dim if hidden_dim is None else hidden_dim
        for _ in range(num_layers):
            attention = MultiHeadAttention(
                model_dim,
                num_heads,
                num_key_heads=num_key_heads,
                key_dim=key_dim,
                projection_bias=projection_bias,
                rotary=encoding.rotary,
                bias=encoding.bias,
                dropout=attention_dropout,
            )
            feed_forward = None
            if hidden_dim:
                feed_forward = FeedForward(
                    model_dim, hidden_dim, activation=activation, bias=projection_bias
                )
            block = TransformerBlock(
                attention,
                feed_forward,
                make_norm(norm, model_dim, norm_eps),
                make_norm(norm, model_dim, norm_eps) if feed_forward is not None else None,
                norm_first=norm_first,
                dropout=dropout,
            )
            self.append(block)
        self._initialise(norm_first)

    def forward(
        self,
        x: Float[Tensor, "batch sequence model_dim"],
        *,
        pattern: Pattern | None = None,
        caches: Sequence[KeyValueCache] | None = None,
    ) -> Float[Tensor, "batch sequence model_dim"]:
        """Return the output of the last block, [batch, sequence, model_dim].

        Args:
            x: [batch, sequence, model_dim].
            pattern: pattern of every block.
            caches: a cache for each block.
        """
        if caches is not None and len(caches) != len(self):
            raise ValueError(
                f"caches must have one cache per layer ({len(self)}), got {len(caches)}"
            )
        for block, cache in zip(self, caches or repeat(None), strict=False):
            x = block(x, pattern=pattern, cache=cache)
        return x

    def states(
        self, x: Float[Tensor, "batch sequence model_dim"], *, pattern: Pattern | None = None
    ) -> list[Float[Tensor, "batch sequence model_dim"]]:
        """Return `x` and the output of each block."""
        found = [x]
        for block in self:
            found.append(block(found[-1], pattern=pattern))
        return found

    @torch.no_grad()
    def matrices(
        self, x: Float[Tensor, "batch sequence model_dim"], *, pattern: Pattern | None = None
    ) -> list[AttentionMatrix]:
        """Return the attention matrix of each block, [batch, heads, sequence, sequence] each."""
        blocks = [cast(TransformerBlock, block) for block in self]
        found = [blocks[0].matrix(x, pattern=pattern)]
        for before, block in pairwise(blocks):
            x = before(x, pattern=pattern)
            found.append(block.matrix(x, pattern=pattern))
        return found

    def _initialise(self, norm_first: bool) -> None:
        """Initialise as BERT, GPT-2 and ViT do; pre-norm residuals scale with 1/√(2 · depth)."""
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                adds = name.endswith((".output", ".down")) and norm_first
                nn.init.normal_(module.weight, std=STD / math.sqrt(2 * len(self)) if adds else STD)
                if module.bias is not None:  # pyright: ignore[reportUnnecessaryComparison]
                    nn.init.zeros_(module.bias)


def make_norm(name: str, model_dim: int, eps: float) -> nn.Module:
    """Make a norm by its name, "layer" or "rms"."""
    check_choice("norm", name, _NORMS)
    return _NORMS[name](model_dim, eps=eps)
