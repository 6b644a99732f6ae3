"""The attention of a vLLM layer: its scale, pattern, bias and sinks."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.patterns import Pattern, causal, window
from regard.positions import Bias, softcap
from regard.positions.alibi import Alibi
from regard.positions.bias import compose


@dataclass(frozen=True)
class WatchedLayer:
    """A supported attention layer of vLLM.

    Attributes:
        name: path of its module.
        module: the layer, an object of vLLM.
        kernel: name of its attention backend.
        pattern: which keys each query may attend to.
        bias: the score bias: ALiBi, softcap or both.
        scale: the factor on the scores.
        sinks: the sink score of each head, [heads].
    """

    name: str
    module: Any
    kernel: str
    pattern: Pattern
    bias: Bias | None
    scale: float
    sinks: Float[Tensor, "heads"] | None

    @property
    def reach(self) -> int | None:
        """Number of earlier keys that a query may attend to; None if all."""
        window_size: int | None = self.module.sliding_window
        return None if window_size is None else window_size - 1


def has_attention(module: nn.Module) -> bool:
    """Return whether a module is a vLLM layer with a cache or a state."""
    return hasattr(module, "kv_cache")


def watched_layer(name: str, module: Any) -> WatchedLayer:
    """Return a layer with its scale, pattern, bias and sinks.

    Raises:
        ValueError: it is not understood.
    """
    obstacle = _obstacle(module)
    if obstacle:
        raise ValueError(f"llm can't be watched: {name} {obstacle}; leave it out by where=")
    implementation = module.impl
    size: int | None = module.sliding_window
    slopes, cap = implementation.alibi_slopes, implementation.logits_soft_cap
    sinks = getattr(implementation, "sinks", None)
    with torch.inference_mode(False):
        return WatchedLayer(
            name,
            module,
            module.attn_backend.get_name(),
            causal() if size is None else window(before=size - 1),
            compose(
                softcap(cap) if cap else None,
                None if slopes is None else Alibi(torch.as_tensor(slopes).tolist()),
            ),
            implementation.scale,
            None if sinks is None else sinks.detach().clone(),
        )


def _obstacle(layer: Any) -> str:
    """Return why a layer is not understood; "" if it is."""
    kind = type(layer)
    if kind.__name__ != "Attention" or kind.__module__.partition(".")[0] != "vllm":
        return f"is {kind.__name__}, no plain attention"
    if str(getattr(layer.attn_type, "value", layer.attn_type)) != "decoder":
        return f"has attention of type {layer.attn_type}, not of a decoder"
    implementation = layer.impl
    missing = [
        attribute
        for attribute in ("scale", "alibi_slopes", "logits_soft_cap", "do_kv_cache_update")
        if not hasattr(implementation, attribute)
    ]
    if missing or layer.attn_backend.forward_includes_kv_cache_update:
        lacks = f" without {missing[0]}" if missing else " that writes its cache as it attends"
        return f"has the backend {layer.attn_backend.get_name()},{lacks}"
    if layer.kv_sharing_target_layer_name is not None:
        return f"shares the keys of {layer.kv_sharing_target_layer_name}"
    if layer.kv_cache.dtype != layer.dtype:
        return f"rounds its keys: its cache is {layer.kv_cache.dtype}, its queries {layer.dtype}"
    if layer.head_size != layer.head_size_v:
        return "has values of another size than its keys"
    if layer.use_alibi_sqrt:
        return "has a bias by the root of the distance (use_alibi_sqrt)"
    if layer.use_mm_prefix:
        return "attends to images in both directions"
    if getattr(implementation, "chunk_lookback", -1) > -1:
        return "attends in chunks"
    return ""
