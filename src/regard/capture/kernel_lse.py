"""The log-sum-exp that PyTorch's kernel computes beside its output, and does not hand out."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


class KernelLse(TorchDispatchMode):
    """Sees the kernel that scaled_dot_product_attention runs on a CPU without a mask."""

    def __init__(self) -> None:
        super().__init__()
        self._found: list[tuple[Tensor, Tensor]] = []

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        options: Mapping[str, Any] = kwargs or {}
        result = func(*args, **options)
        # A mask may leave rows without keys, of which the kernel says something else than −inf.
        if func is _FLASH and options.get("attn_mask") is None:
            self._found.append(result)
        return result

    def of(self, output: Tensor) -> Float[Tensor, "batch heads queries"] | None:
        """Return the log-sum-exp of an output, [batch, heads, queries, value_dim], if seen."""
        # Of half precision the kernel takes a coarser exponential.
        if len(self._found) != 1 or output.dtype not in (torch.float32, torch.float64):
            return None
        seen, lse = self._found[0]
        same = seen.data_ptr() == output.data_ptr() and seen.shape == output.shape
        return lse if same and seen.stride() == output.stride() else None
