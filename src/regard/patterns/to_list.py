"""`Tensor.tolist` that works under `torch.func`."""

from typing import Any

from torch import Tensor

from regard.internals import in_functorch


def to_list(tensor: Tensor) -> list[Any]:
    """Return the numbers of a tensor, also under `torch.func`, where torch 2.9's `tolist` fails."""
    if not in_functorch():
        return tensor.tolist()
    return [to_list(part) if part.dim() else part.item() for part in tensor.unbind()]
