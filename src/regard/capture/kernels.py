"""Arguments of PyTorch's kernel and of `attend` as captured calls."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard.capture.call import KernelCall
from regard.patterns import Pattern, causal
from regard.positions import Bias

_FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


class KernelLse(TorchDispatchMode):
    """Keeps the log-sum-exp that PyTorch's kernel computes beside its output, without returning it.

    It sees the kernel that scaled_dot_product_attention runs on a CPU without a mask.
    """

    def __init__(self) -> None:
        super().__init__()
        self._results: list[tuple[Tensor, Tensor]] = []

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        options: Mapping[str, Any] = kwargs or {}
        result = func(*args, **options)
        # A mask may leave rows without keys, of which the kernel returns something else than −inf.
        if func is _FLASH and options.get("attn_mask") is None:
            self._results.append(result)
        return result

    def of(self, output: Tensor) -> Float[Tensor, "batch heads queries"] | None:
        """Return the log-sum-exp of an output, [batch, heads, queries, value_dim], if seen."""
        # For half precision the kernel takes a coarser exponential.
        if len(self._results) != 1 or output.dtype not in (torch.float32, torch.float64):
            return None
        result, lse = self._results[0]
        same = result.data_ptr() == output.data_ptr() and result.shape == output.shape
        return lse if same and result.stride() == output.stride() else None


def sdpa_call(
    output: Tensor,
    lse: Tensor | None,
    by_row: bool,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> KernelCall:
    """Convert the arguments of scaled_dot_product_attention to a `KernelCall`.

    With `by_row`, each query has the position of its row.
    """
    if query.is_nested:
        raise ValueError("nested tensors are not supported")
    leading, original = output.shape[:-3], output
    if attn_mask is not None and attn_mask.dim() > 3 and len(leading) > 1:
        attn_mask = attn_mask.expand(*leading, *attn_mask.shape[-3:]).flatten(end_dim=-4)
    query, key, value, output = (_with_four_axes(x, leading) for x in (query, key, value, output))
    if attn_mask is not None and attn_mask.dim() == 3 and len(leading) == 0:
        # The axis before the queries is the batch.
        attn_mask = attn_mask[:, None]
    return KernelCall(
        kernel="sdpa",
        query=query,
        key=key,
        value=value,
        output=output,
        original=original,
        mask=attn_mask,
        pattern=causal() if is_causal else None,
        first_query=0 if is_causal or by_row else None,
        placed=by_row,
        scale=scale,
        dropout=dropout_p,
        kernel_lse=lse,
    )


def _with_four_axes(tensor: Tensor, leading: Sequence[int]) -> Tensor:
    """Return a tensor as [batch, heads, sequence, dim]; one with three axes has one head."""
    if tensor.dim() <= 3:
        return tensor[None, None] if tensor.dim() == 2 else tensor[:, None]
    return tensor.expand(*leading, *tensor.shape[-3:]).flatten(end_dim=-4)


def attend_call(
    output: Tensor,
    lse: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    pattern: Pattern | None,
    bias: Bias | Tensor | None,
    scale: float | None,
    dropout: float,
    positions: int | Tensor | None,
    backend: str,
    group: object = None,
) -> KernelCall:
    """Convert the arguments of `attend` to a `KernelCall`.

    Raises:
        ValueError: other processes have a part of its keys.
    """
    if group is not None:
        raise ValueError("the sequence is sharded over processes, its keys are not all here")

    numbers = isinstance(bias, Tensor)
    by_pattern = pattern is not None and not pattern.key_only
    return KernelCall(
        kernel="attend",
        query=query,
        key=key,
        value=value,
        output=output,
        original=output,
        pattern=pattern,
        first_query=positions,
        placed=positions is not None or by_pattern or bias is not None,
        bias=None if numbers else bias,
        added=bias if numbers else None,
        scale=scale,
        dropout=dropout,
        lse=lse,
    )
