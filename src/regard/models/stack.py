"""A stack of transformer blocks, and its position encoding by name."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import check_choice, check_positive
from regard.layers import FeedForward, KeyValueCache, MultiHeadAttention, TransformerBlock
from regard.matrix import AttentionMatrix
from regard.patterns import Pattern
from regard.positions import Bias, Relative, Rotary, alibi

PositionEncoding = str | Rotary | Bias | None
"""A name, a `Rotary` or a `Bias`."""

IN_EMBEDDINGS = ("learned", "sinusoidal")
IN_ATTENTION = ("rotary", "alibi", "relative")

STD = 0.02
"""The standard deviation of new weights."""

_NORMS = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}


@dataclass(frozen=True, eq=False, kw_only=True)
class StackConfig:
    """The sizes and options of a stack of blocks.

    Attributes:
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

    num_layers: int
    model_dim: int
    num_heads: int
    num_key_heads: int | None = None
    key_dim: int | None = None
    hidden_dim: int | None = None
    activation: str = "gelu"
    norm: str = "layer"
    norm_eps: float = 1e-5
    norm_first: bool = True
    position_encoding: PositionEncoding = None
    bidirectional: bool = True
    projection_bias: bool = True
    dropout: float = 0.0
    attention_dropout: float = 0.0


class Stack(nn.ModuleList):
    """Equal transformer blocks, run in order."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        check_positive(
            num_layers=config.num_layers, model_dim=config.model_dim, num_heads=config.num_heads
        )
        encoding = attention_encoding(
            config.position_encoding,
            num_heads=config.num_heads,
            key_dim=config.key_dim or config.model_dim // config.num_heads,
            bidirectional=config.bidirectional,
        )
        for _ in range(config.num_layers):
            self.append(_new_block(config, encoding))
        self._initialise(config.norm_first)

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
        return list(self._states(x, pattern))

    @torch.no_grad()
    def matrices(
        self, x: Float[Tensor, "batch sequence model_dim"], *, pattern: Pattern | None = None
    ) -> list[AttentionMatrix]:
        """Return the attention matrix of each block, [batch, heads, sequence, sequence] each."""
        blocks = [cast(TransformerBlock, block) for block in self]
        # Blocks come first, so that the last one doesn't run.
        inputs = zip(blocks, self._states(x, pattern), strict=False)
        return [block.matrix(state, pattern=pattern) for block, state in inputs]

    def _states(self, x: Tensor, pattern: Pattern | None) -> Iterator[Tensor]:
        """Yield `x` and the output of each block; each runs when its output is asked for."""
        yield x
        for block in self:
            x = block(x, pattern=pattern)
            yield x

    def _initialise(self, norm_first: bool) -> None:
        """Initialise as BERT, GPT-2 and ViT do; pre-norm residuals scale with 1/√(2 · depth)."""
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                adds = name.endswith((".output", ".down")) and norm_first
                nn.init.normal_(module.weight, std=STD / math.sqrt(2 * len(self)) if adds else STD)
                if module.bias is not None:  # pyright: ignore[reportUnnecessaryComparison]
                    nn.init.zeros_(module.bias)


def _new_block(config: StackConfig, encoding: "AttentionEncoding") -> TransformerBlock:
    model_dim, bias = config.model_dim, config.projection_bias
    attention = MultiHeadAttention(
        model_dim,
        config.num_heads,
        num_key_heads=config.num_key_heads,
        key_dim=config.key_dim,
        projection_bias=bias,
        rotary=encoding.rotary,
        bias=encoding.bias,
        dropout=config.attention_dropout,
    )

    hidden_dim = 4 * model_dim if config.hidden_dim is None else config.hidden_dim
    feed_forward = feed_forward_norm = None
    if hidden_dim:
        feed_forward = FeedForward(model_dim, hidden_dim, activation=config.activation, bias=bias)
        feed_forward_norm = make_norm(config.norm, model_dim, config.norm_eps)

    return TransformerBlock(
        attention,
        feed_forward,
        make_norm(config.norm, model_dim, config.norm_eps),
        feed_forward_norm,
        norm_first=config.norm_first,
        dropout=config.dropout,
    )


def make_norm(name: str, model_dim: int, eps: float) -> nn.Module:
    """Make a norm by its name, "layer" or "rms"."""
    check_choice("norm", name, _NORMS)
    return _NORMS[name](model_dim, eps=eps)


class AttentionEncoding(NamedTuple):
    """The position encoding of an attention layer: rotary, a score bias, or neither."""

    rotary: Rotary | None = None
    bias: Bias | None = None


def attention_encoding(
    position_encoding: PositionEncoding, *, num_heads: int, key_dim: int, bidirectional: bool
) -> AttentionEncoding:
    """Return the position encoding of attention layers; none for those in the embeddings.

    Args:
        position_encoding: "learned", "sinusoidal", "rotary", "alibi", "relative", an object,
            or None.
        num_heads: number of query heads.
        key_dim: size of a head's queries and keys.
        bidirectional: whether attention is bidirectional.
    """
    if position_encoding == "rotary":
        return AttentionEncoding(rotary=Rotary(key_dim))
    if isinstance(position_encoding, Rotary):
        return AttentionEncoding(rotary=position_encoding)
    if position_encoding == "alibi":
        return AttentionEncoding(bias=alibi(num_heads))
    if position_encoding == "relative":
        return AttentionEncoding(bias=Relative(num_heads, bidirectional=bidirectional))
    if position_encoding is None or position_encoding in IN_EMBEDDINGS:
        return AttentionEncoding()
    if isinstance(position_encoding, Bias):
        return AttentionEncoding(bias=position_encoding)
    choices = ", ".join(f'"{choice}"' for choice in (*IN_EMBEDDINGS, *IN_ATTENTION))
    raise ValueError(
        f"position_encoding must be one of {choices}, a Rotary, a Bias or None, "
        f"got {position_encoding!r}"
    )
