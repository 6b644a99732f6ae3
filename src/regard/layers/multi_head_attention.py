"""Multi-head attention, which takes the weights of PyTorch's layer and returns them."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import attend
from regard.errors import check_positive, check_share
from regard.layers.cache import KeyValueCache
from regard.matrix import AttentionMatrix
from regard.patterns import Pattern
from regard.patterns.pattern import intersect
from regard.positions import Bias, Rotary


class MultiHeadAttention(nn.Module):
    """Multi-head self-attention, or cross-attention to a context.

        Q_h = X W_Q,h          K_h = C W_K,h          V_h = C W_V,h
        Y_h = softmax(Q_h K_hᵀ / √key_dim) V_h
        Y   = [Y_1 … Y_H] W_O

    where the context C is X itself in self-attention. `load_state_dict` also takes the weights of
    `torch.nn.MultiheadAttention`, and `torch_state_dict` returns them.

    Args:
        model_dim: input and output size.
        num_heads: number of query heads.
        num_key_heads: number of key and value heads, a divisor of `num_heads` and equal to it by
            default. With fewer, query head h uses key head h // (num_heads // num_key_heads).
        key_dim: size of a head's queries and keys; model_dim // num_heads by default.
        value_dim: size of a head's values; `key_dim` by default.
        context_dim: size of the context's vectors; `model_dim` by default.
        projection_bias: whether the query, key and value projections have a bias.
        output_bias: whether the output projection has one; as `projection_bias` by default.
        rotary: rotary embedding of queries and keys. Self-attention only.
        bias: score bias.
        pattern: which keys each query may attend to; all by default.
        scale: factor on the scores; 1/√key_dim by default.
        dropout: dropout probability of the weights.

    Raises:
        ValueError: a size is not positive, or sizes don't fit together.

    >>> import torch, regard
    >>> layer = MultiHeadAttention(model_dim=32, num_heads=4, pattern=regard.causal())
    >>> x = torch.randn(2, 10, 32)
    >>> layer(x).shape
    torch.Size([2, 10, 32])
    >>> layer.matrix(x)
    AttentionMatrix(2 batch × 4 heads × 10 queries × 10 keys, float32, causal())
    """

    def __init__(
        self,
        model_dim: int,
        num_heads: int,
        *,
        num_key_heads: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
        context_dim: int | None = None,
        projection_bias: bool = True,
        output_bias: bool | None = None,
        rotary: Rotary | None = None,
        bias: Bias | None = None,
        pattern: Pattern | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        # 1. Sizes, which default to one another.
        num_key_heads = num_heads if num_key_heads is None else num_key_heads
        check_positive(model_dim=model_dim, num_heads=num_heads, num_key_heads=num_key_heads)
        if num_heads % num_key_heads:
            raise ValueError(
                f"num_heads ({num_heads}) must be a multiple of num_key_heads, got {num_key_heads}"
            )
        if key_dim is None and model_dim % num_heads:
            raise ValueError(
                f"model_dim ({model_dim}) must be a multiple of num_heads unless key_dim is given, "
                f"got {num_heads} heads"
            )
        key_dim = model_dim // num_heads if key_dim is None else key_dim
        value_dim = key_dim if value_dim is None else value_dim
        context_dim = model_dim if context_dim is None else context_dim
        check_positive(key_dim=key_dim, value_dim=value_dim, context_dim=context_dim)
        check_share("dropout", dropout)

        # 2. Projections of all heads at once.
        self.num_heads, self.num_key_heads = num_heads, num_key_heads
        self.query = nn.Linear(model_dim, num_heads * key_dim, projection_bias)
        self.key = nn.Linear(context_dim, num_key_heads * key_dim, projection_bias)
        self.value = nn.Linear(context_dim, num_key_heads * value_dim, projection_bias)
        output_bias = projection_bias if output_bias is None else output_bias
        self.output = nn.Linear(num_heads * value_dim, model_dim, output_bias)
        for projection in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(projection.weight)
            if projection.bias is not None:  # pyright: ignore[reportUnnecessaryComparison]
                nn.init.zeros_(projection.bias)
        self.register_load_state_dict_pre_hook(_from_torch)

        # 3. Options of `attend`.
        self.rotary, self.bias, self.pattern = rotary, bias, pattern
        self.scale, self.dropout = scale, dropout

    def forward(
        self,
        x: Float[Tensor, "batch queries model_dim"],
        context: Float[Tensor, "batch keys context_dim"] | None = None,
        *,
        pattern: Pattern | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch queries model_dim"]:
        """Return the output of attention, [batch, queries, model_dim].

        Args:
            x: [batch, queries, model_dim].
            context: source of keys and values, [batch, keys, context_dim]; `x` by default.
            pattern: combined with the layer's pattern by `&`, such as padding.
            cache: keys and values of earlier tokens; those of `x` are appended. Self-attention
                only.

        Raises:
            ValueError: a cache or rotary is used with a context.
        """
        query, key, value = self._projected(x, context, cache)
        if cache is not None:
            key, value = cache.append(key, value)
        dropout = self.dropout if self.training else 0.0
        output = attend(query, key, value, dropout=dropout, **self._attend_kwargs(pattern))
        return self.output(output.transpose(1, 2).flatten(start_dim=2))

    @torch.no_grad()
    def matrix(
        self,
        x: Float[Tensor, "batch queries model_dim"],
        context: Float[Tensor, "batch keys context_dim"] | None = None,
        *,
        pattern: Pattern | None = None,
        cache: KeyValueCache | None = None,
    ) -> AttentionMatrix:
        """Return the attention matrix of `forward` without dropout, [batch, heads, queries, keys].

        Args: as for `forward`; the cache is not changed.
        """
        query, key, value = self._projected(x, context, cache)
        if cache is not None:
            key, _ = cache.with_new(key, value)
        return AttentionMatrix(query, key, **self._attend_kwargs(pattern))

    def torch_state_dict(self) -> dict[str, Tensor]:
        """Return the weights under the names of `torch.nn.MultiheadAttention`.

        Raises:
            ValueError: `torch.nn.MultiheadAttention` has no such layer: it has no grouped queries,
                `rotary`, `bias` or `scale`, its head sizes sum to model_dim, and all of its
                projections have a bias or none.
        """
        for name, part in (("rotary", self.rotary), ("bias", self.bias), ("scale", self.scale)):
            if part is not None:
                raise ValueError(f"torch.nn.MultiheadAttention has no {name}, got {part}")
        return _to_torch(self.state_dict(), self.num_heads, self.num_key_heads)

    def _projected(
        self, x: Tensor, context: Tensor | None, cache: KeyValueCache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, [batch, heads, sequence, dim] each."""
        if context is not None and (cache is not None or self.rotary is not None):
            option = "a cache" if cache is not None else "rotary"
            raise ValueError(f"{option} needs self-attention: call the layer without context")
        context = x if context is None else context
        query = self.query(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        key = self.key(context).unflatten(-1, (self.num_key_heads, -1)).transpose(1, 2)
        value = self.value(context).unflatten(-1, (self.num_key_heads, -1)).transpose(1, 2)
        if self.rotary is not None:
            # In one call, because the angles are the same.
            both = self.rotary(torch.cat([query, key], dim=1), offset=len(cache) if cache else 0)
            query, key = both.split([self.num_heads, self.num_key_heads], dim=1)
        return query, key, value

    def _attend_kwargs(self, pattern: Pattern | None) -> dict[str, Any]:
        """Return the options that `attend` and `AttentionMatrix` share."""
        pattern = intersect(self.pattern, pattern)
        return {"pattern": pattern, "bias": self.bias, "scale": self.scale}

    def extra_repr(self) -> str:
        words = [f"num_heads={self.num_heads}"]
        if self.num_key_heads != self.num_heads:
            words.append(f"num_key_heads={self.num_key_heads}")
        facts: dict[str, object] = {
            "pattern": self.pattern,
            "bias": None if isinstance(self.bias, nn.Module) else self.bias,
            "scale": self.scale,
            "dropout": self.dropout or None,
        }
        words += [f"{name}={fact}" for name, fact in facts.items() if fact is not None]
        return ", ".join(words)


_PARTS = ("query", "key", "value")
"""The projections that PyTorch keeps in one matrix, or in three if keys have another input size.

Their biases are always in one vector.
"""


def _from_torch(module: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    """Rename PyTorch's weights in a state dict: a hook for `register_load_state_dict_pre_hook`."""

    def take(name: str) -> Tensor | None:
        return state.pop(prefix + name, None)

    for kind in ("weight", "bias"):
        if (joined := take(f"in_proj_{kind}")) is not None:
            for part, piece in zip(_PARTS, joined.chunk(3), strict=True):
                state[f"{prefix}{part}.{kind}"] = piece
        if (output := take(f"out_proj.{kind}")) is not None:
            state[f"{prefix}output.{kind}"] = output
    for part in _PARTS:
        if (weight := take(f"{part[0]}_proj_weight")) is not None:
            state[f"{prefix}{part}.weight"] = weight


def _to_torch(state: Mapping[str, Tensor], num_heads: int, num_key_heads: int) -> dict[str, Tensor]:
    """Return our weights under PyTorch's names; raise ValueError if its layer can't have them."""
    weights = [state[f"{part}.weight"] for part in _PARTS]
    model_dim = weights[0].shape[1]

    if num_key_heads != num_heads:
        raise ValueError(
            "torch.nn.MultiheadAttention has no grouped queries: num_key_heads must be num_heads "
            f"({num_heads}), got {num_key_heads}"
        )
    for part, weight in zip(_PARTS, weights, strict=True):
        if weight.shape[0] != model_dim:
            raise ValueError(
                "the head sizes of torch.nn.MultiheadAttention sum to model_dim: those of the "
                f"{part} heads must sum to {model_dim}, got {weight.shape[0]}"
            )
    if ("query.bias" in state) != ("output.bias" in state):
        raise ValueError(
            "torch.nn.MultiheadAttention has all biases or none: output_bias must be "
            f"projection_bias ({'query.bias' in state}), got {'output.bias' in state}"
        )

    torch_state: dict[str, Tensor] = {}
    if weights[1].shape[1] == model_dim:
        torch_state["in_proj_weight"] = torch.cat(weights)
    else:
        for part, weight in zip(_PARTS, weights, strict=True):
            torch_state[f"{part[0]}_proj_weight"] = weight.clone()
    if "query.bias" in state:
        torch_state["in_proj_bias"] = torch.cat([state[f"{part}.bias"] for part in _PARTS])
        torch_state["out_proj.bias"] = state["output.bias"].clone()
    torch_state["out_proj.weight"] = state["output.weight"].clone()
    return torch_state
