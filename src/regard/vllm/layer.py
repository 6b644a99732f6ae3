"""A layer of a vLLM engine as a call of attention that has no tokens yet."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from regard.attention.call import Attention
from regard.calls.call import AttentionCall, layer_index
from regard.patterns import causal, window
from regard.positions import softcap
from regard.positions.alibi import Alibi
from regard.positions.bias import compose
from regard.vllm.cache import CacheReader


@dataclass(frozen=True)
class WatchedLayer:
    """A supported attention layer of vLLM.

    Attributes:
        module: the layer, an object of vLLM.
        block_size: number of tokens in a block of its cache.
        call: its call, without sizes and a matrix.
        attention: its attention, without tokens: scale, pattern, sinks, and ALiBi or softcap.
    """

    module: Any
    block_size: int
    call: AttentionCall
    attention: Attention

    @property
    def num_key_heads(self) -> int:
        """Number of key heads."""
        return self.attention.key.shape[1]

    @property
    def reach(self) -> int | None:
        """Number of earlier keys that a query may attend to; None if all."""
        window_size: int | None = self.module.sliding_window
        return None if window_size is None else window_size - 1

    @property
    def token_bytes(self) -> int:
        """Bytes of a token's queries, keys, values and outputs."""
        num_heads = 2 * (self.attention.num_heads + self.num_key_heads)
        return num_heads * self.module.head_size * self.module.dtype.itemsize

    @cached_property
    def reader(self) -> CacheReader:
        """The reader of its cache, which few requests need."""
        return CacheReader(self.module, self.block_size)


def has_attention(module: nn.Module) -> bool:
    """Return whether a module is a vLLM layer with a cache or a state."""
    return hasattr(module, "kv_cache")


def watched_layer(
    index: int, name: str, module: Any, block_sizes: Mapping[str, int]
) -> WatchedLayer:
    """Return a layer with its scale, pattern, bias and sinks.

    Args:
        index: its number among the watched layers.
        name: path of its module.
        module: the layer, an object of vLLM.
        block_sizes: the block size of each cache, by vLLM's name of its layer.

    Raises:
        ValueError: it is not supported.
    """
    obstacle = _obstacle(module)
    if obstacle:
        raise ValueError(f"llm can't be watched: {name} {obstacle}; leave it out by where=")

    implementation = module.impl
    window_size: int | None = module.sliding_window
    slopes, cap = implementation.alibi_slopes, implementation.logits_soft_cap
    sinks = getattr(implementation, "sinks", None)
    call = AttentionCall(
        index=index,
        module=name,
        kind="self",
        layer=layer_index(name),
        kernel=module.attn_backend.get_name(),
    )
    with torch.inference_mode(False):
        attention = Attention(
            query=torch.empty(1, module.num_heads, 0, module.head_size, dtype=module.dtype),
            key=torch.empty(1, module.num_kv_heads, 0, module.head_size, dtype=module.dtype),
            pattern=causal() if window_size is None else window(before=window_size - 1),
            bias=compose(
                softcap(cap) if cap else None,
                None if slopes is None else Alibi(torch.as_tensor(slopes).tolist()),
            ),
            scale=implementation.scale,
            sinks=None if sinks is None else sinks.detach().clone(),
            positions=range(0),
        )
    return WatchedLayer(module, block_sizes[module.layer_name], call, attention)


def _obstacle(layer: Any) -> str:
    """Return why a layer is not supported; "" if it is."""
    # 1. The kind of the layer.
    kind = type(layer)
    if kind.__name__ != "Attention" or kind.__module__.partition(".")[0] != "vllm":
        return f"is {kind.__name__}, no plain attention"
    if str(getattr(layer.attn_type, "value", layer.attn_type)) != "decoder":
        return f"has attention of type {layer.attn_type}, not of a decoder"

    # 2. Its backend, whose attributes are read, and which writes scratch caches for the reader.
    implementation = layer.impl
    missing = [
        attribute
        for attribute in ("scale", "alibi_slopes", "logits_soft_cap", "do_kv_cache_update")
        if not hasattr(implementation, attribute)
    ]
    if missing or layer.attn_backend.forward_includes_kv_cache_update:
        lacks = f" without {missing[0]}" if missing else " that writes its cache as it attends"
        return f"has the backend {layer.attn_backend.get_name()},{lacks}"

    # 3. Its cache.
    if layer.kv_sharing_target_layer_name is not None:
        return f"shares the keys of {layer.kv_sharing_target_layer_name}"
    if layer.kv_cache.dtype != layer.dtype:
        return f"rounds its keys: its cache is {layer.kv_cache.dtype}, its queries {layer.dtype}"
    if layer.head_size != layer.head_size_v:
        return "has values of another size than its keys"

    # 4. Its bias and its pattern.
    if layer.use_alibi_sqrt:
        return "has a bias by the root of the distance (use_alibi_sqrt)"
    if layer.use_mm_prefix:
        return "attends to images in both directions"
    if getattr(implementation, "chunk_lookback", -1) > -1:
        return "attends in chunks"
    return ""
