"""Capture calls of transformers' attention interface, with any kernel."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

from torch import Tensor, nn

from regard.capture.call import KernelCall
from regard.capture.kernels import KernelLse
from regard.capture.patch import Patch
from regard.hf.attention import LAYER_PATTERN
from regard.hf.masks import PatternMask
from regard.hf.use import NAME
from regard.internals import run_uncompiled, skip_compile
from regard.patterns import Pattern, causal, window
from regard.patterns.pattern import intersect
from regard.positions import softcap as capped
from regard.positions.bias import compose


def _begin() -> Callable[[], None]:
    """Wrap `get_interface`, which models call before each use of attention."""
    interface: Any = sys.modules["transformers.modeling_utils"].AttentionInterface
    original = interface.get_interface

    def get_interface(self: Any, name: str, default: Callable[..., Any]) -> Callable[..., Any]:
        function = original(self, name, default)
        if PATCH.receiver() is None:
            return function
        return partial(wrapped_attention, name or "eager", function)

    if "torch._dynamo" in sys.modules:
        skip_compile(get_interface)
    interface.get_interface = get_interface
    return partial(setattr, interface, "get_interface", original)


PATCH = Patch(_begin)


def wrapped_attention(*arguments: Any, **options: Any) -> Any:
    """Call a kernel and tell the receiver; arguments as for `_call`."""
    return run_uncompiled(_call, *arguments, **options)


def _call(
    kernel: str,
    function: Callable[..., Any],
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    **options: Any,
) -> Any:
    receiver = PATCH.receiver()
    if receiver is None:
        # A model may keep what `get_interface` returned.
        return function(module, query, key, value, attention_mask, **options)
    with receiver.paused(), KernelLse() if receiver.wants_lse else nullcontext() as kernel_lse:
        output = function(module, query, key, value, attention_mask, **options)
    lse = None if kernel_lse is None else kernel_lse.of(output[0].transpose(1, 2))
    read = partial(_read, kernel, module, query, key, value, attention_mask, output, lse, **options)
    changed = receiver.on_call(kernel, module, read)
    if changed is None:
        return output
    returned = changed.returned.transpose(1, 2).contiguous()
    return (returned, changed.weights, *output[2:])


def _read(
    kernel: str,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Any,
    output: tuple[Tensor, Tensor | None],
    lse: Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> KernelCall:
    """Convert the arguments of a module of transformers; see `regard.hf.attention`."""
    if others.get("cache") is not None:
        raise ValueError("paged caches are not supported")
    looks_back = bool(is_causal if is_causal is not None else getattr(module, "is_causal", True))
    # sdpa ignores the softcap, unless transformers refuses the two together.
    bias = None if softcap is None or kernel == "sdpa" else capped(softcap)
    pattern, first_query = _order(kernel, mask, query, key, looks_back, sliding_window)
    if mask is not None and not isinstance(mask, Tensor):
        # A BlockMask.
        from regard.capture.flex import meaning

        first_query = key.shape[2] - query.shape[2]
        pattern, by_head = meaning(mask, first_query)
        bias, mask = compose(bias, by_head), None
    if kernel == NAME:
        pattern = intersect(pattern, getattr(module, LAYER_PATTERN, None))
    if mask is not None and mask.dim() == 2 and not isinstance(mask, PatternMask):
        # As for flash attention: which keys are not padding.
        mask = mask[:, None, None, :].bool()
    return KernelCall(
        kernel=kernel,
        query=query,
        key=key,
        value=value,
        output=output[0].transpose(1, 2),
        original=output[0],
        mask=mask,
        pattern=pattern,
        first_query=first_query,
        bias=bias,
        added=position_bias,
        scale=scaling,
        dropout=dropout,
        sinks=s_aux,
        weights=output[1],
        kernel_lse=lse,
    )


def _order(
    kernel: str,
    mask: Tensor | None,
    query: Tensor,
    key: Tensor,
    looks_back: bool,
    sliding_window: int | None,
) -> tuple[Pattern | None, int | None]:
    """Return the pattern that a kernel applies without a mask."""
    if kernel.startswith("flash"):
        # The window extends to both sides if attention is not causal.
        near = None
        if sliding_window is not None:
            reach = sliding_window - 1
            near = window(before=reach, after=0 if looks_back else reach)
        pattern = intersect(causal(), near) if looks_back else near
        return pattern, None if pattern is None else key.shape[2] - query.shape[2]
    if mask is None and looks_back and kernel != "eager" and query.shape[2] > 1:
        return causal(), 0
    return None, None
