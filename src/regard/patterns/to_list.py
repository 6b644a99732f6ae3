"""`Tensor.tolist` that works under `torch.func`."""

# pyright: reportPrivateUsage=false

from typing import Any

import torch
from torch import Tensor


def to_list(tensor: Tensor) -> list[Any]:
    """Return the numbers of a tensor, also under `torch.func`, where torch 2.9's `tolist` fails."""
    if not torch._C._are_functorch_transforms_active():
        return tensor.tolist()
    return [to_list(part) if part.dim() else part.item() for part in tensor.unbind()]
