"""Picking along one axis: a range, which reads in place, or a list of indices."""

import torch
from torch import Tensor

Index = range | Tensor
"""Which places of an axis: equally far apart, or any, [places], on the CPU."""


def take(tensor: Tensor, axis: int, index: Index) -> Tensor:
    """Return the places of an axis that an index names; a view where it is a range."""
    if isinstance(index, range):
        where = (slice(None),) * axis
        return tensor[(*where, slice(index.start, index.stop, index.step))]
    return tensor.index_select(axis, index.to(tensor.device))


def put(tensor: Tensor, axis: int, index: Index, values: Tensor) -> None:
    """Write the places of an axis that an index names."""
    if isinstance(index, range):
        take(tensor, axis, index).copy_(values)
    else:
        tensor.index_copy_(axis, index.to(tensor.device), values)


def as_tensor(index: Index) -> Tensor:
    """Return the indices one by one, [places], on the CPU."""
    if isinstance(index, range):
        return torch.arange(index.start, index.stop, index.step, device="cpu")
    return index
