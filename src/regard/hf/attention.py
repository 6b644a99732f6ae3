"""`attend` with the signature of transformers' attention functions."""

from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import attend, attend_with_lse
from regard.hf.masks import BooleanMask, PatternMask
from regard.internals import uncompiled
from regard.patterns import Pattern, causal, from_mask
from regard.patterns.pattern import intersect
from regard.positions import Bias, from_tensor
from regard.positions import softcap as capped
from regard.positions.bias import compose

LAYER_PATTERN = "regard_pattern"
"""Attribute of a module with the pattern of its layer."""

CHOSEN_KEYS = ("indices", "block_indices")
"""Arguments by which models select keys for each query, besides the mask."""

_UNSUPPORTED = (
    'which attn_implementation="regard" does not support: load it with attn_implementation="eager"'
)


@uncompiled
def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Compute the attention of a module of transformers.

    Args:
        module: the module that calls.
        query: [batch, heads, queries, key_dim].
        key: [batch, key_heads, keys, key_dim].
        value: [batch, key_heads, keys, value_dim].
        attention_mask: a mask made by `mask`, or the user's: boolean or additive.
        dropout: dropout probability of the weights.
        scaling: factor on the scores.
        is_causal: whether attention is causal, if there is no mask; `module.is_causal` by default.
        softcap: soft limit of the scores, if any.
        s_aux: score of each head's sink, [heads], if any.
        position_bias: added to the scores, [batch or 1, heads, queries, keys].
        others: arguments for other kernels; a sliding window is in the mask. Numbers that are
            none of the above would change the output, and are refused.

    Returns:
        The output, [batch, queries, heads, value_dim], and no weights.

    Raises:
        ValueError: `attend` doesn't support the call.
    """
    _check_supported(module, others)
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    is_causal = bool(is_causal)

    # 1. The mask of the model.
    pattern, bias, first_query = _parsed_mask(attention_mask, query, key, is_causal)
    if position_bias is not None:
        bias = position_bias if bias is None else bias + position_bias

    # 2. The pattern of the layer.
    layer_pattern = getattr(module, LAYER_PATTERN, None)
    if layer_pattern is not None:
        _check_positions_known(
            layer_pattern, attention_mask, query.shape[2], key.shape[2], is_causal
        )
        if isinstance(attention_mask, PatternMask):
            pattern = attention_mask.intersect(layer_pattern)
        else:
            pattern = intersect(pattern, layer_pattern)

    # 3. Attention. A sink is one more score in the denominator of the softmax.
    attend_kwargs: dict[str, Any] = {
        "pattern": pattern,
        "bias": bias if softcap is None else _capped(softcap, bias, first_query),
        "scale": scaling,
        "dropout": dropout,
        "positions": first_query,
    }
    if s_aux is None:
        output = attend(query, key, value, **attend_kwargs)
    else:
        output, lse = attend_with_lse(query, key, value, **attend_kwargs)
        key_share = torch.sigmoid(lse - s_aux.to(lse.dtype)[:, None])
        output = output * key_share[..., None].to(output.dtype)
    return output.transpose(1, 2).contiguous(), None


def _check_supported(module: nn.Module, others: dict[str, Any]) -> None:
    """Raise ValueError for arguments that would change the output, or what is returned."""
    if others.get("output_attentions"):
        raise ValueError(
            'attn_implementation="regard" returns no weights: leave output_attentions out'
        )
    if others.get("cache") is not None:
        raise ValueError('attn_implementation="regard" has no paged cache')
    for name in CHOSEN_KEYS:
        if others.get(name) is not None:
            raise ValueError(
                f"{type(module).__name__} selects keys for each query ({name}), {_UNSUPPORTED}"
            )
    for name, argument in others.items():
        # Of a newer model: scores of sinks for each query (Inkling 2), say.
        if isinstance(argument, Tensor) and argument.is_floating_point():
            raise ValueError(
                f"{type(module).__name__} passes {name} to its attention, {_UNSUPPORTED}"
            )


def _parsed_mask(
    mask: Tensor | None, query: Tensor, key: Tensor, is_causal: bool
) -> tuple[Pattern | None, Tensor | None, int | None]:
    """Return the pattern, the bias and the first query position of a mask."""
    num_queries = query.shape[2]
    if isinstance(mask, PatternMask):
        return mask.pattern, None, mask.first_query
    if mask is None:
        # As in transformers: a single query attends to all keys; several start at position 0.
        return (causal(), None, 0) if is_causal and num_queries > 1 else (None, None, None)
    if mask.dim() != 4:
        raise ValueError(
            "attention_mask must have 4 axes, [batch, heads or 1, queries, keys], when it reaches "
            f"attention, got {mask.dim()} of shape {list(mask.shape)}"
        )
    mask = mask.dense() if isinstance(mask, BooleanMask) else mask
    mask = mask[..., : key.shape[2]].expand(-1, -1, num_queries, -1)
    if mask.dtype != torch.bool:
        return None, mask, None
    if mask.shape[1] == 1:
        return from_mask(mask[:, 0] if mask.shape[0] > 1 else mask[0, 0]), None, None
    bias = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -torch.inf)
    return None, bias, None


def _capped(bound: float, added: Tensor | None, first_query: int | None) -> Bias | None:
    """Return a softcap, followed by an additive bias."""
    if added is None:
        return capped(bound)
    behind = added.shape[3] - added.shape[2]
    first_row = behind if first_query is None else first_query
    return compose(capped(bound), from_tensor(added, first_query=first_row))


def _check_positions_known(
    layer_pattern: Pattern, mask: Tensor | None, num_queries: int, num_keys: int, is_causal: bool
) -> None:
    """Raise ValueError if a layer has a pattern and query or key positions are unknown."""
    if isinstance(mask, PatternMask):
        if mask.first_key and not layer_pattern.relative:
            raise ValueError(
                f"the cache has dropped the first {mask.first_key} keys, and {layer_pattern} "
                "depends on absolute positions: generate with a cache that keeps all keys"
            )
    # Without a mask, one query is the last, and several of a causal layer are the first.
    elif num_queries != num_keys and (mask is not None or (num_queries > 1 and not is_causal)):
        raise ValueError(
            f"a layer with a pattern ({layer_pattern}) needs the positions of its {num_queries} "
            f"queries among {num_keys} keys, which are unknown"
        )
