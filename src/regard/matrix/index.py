"""Indexing along the axes of tensors: ranges, which read in place, or lists of indices."""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

Index = range | Tensor
"""Indices along an axis: a range, or any, [places], on the CPU."""


@runtime_checkable
class LazyTensor(Protocol):
    """A tensor that is read in parts, on demand.

    Attributes:
        shape: its shape.
        dtype: its dtype.
        device: the device of its parts.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def device(self) -> torch.device: ...

    def read(self, *where: Index) -> Tensor:
        """Return the part at an index for each of the first axes."""
        ...

    def modified(self) -> bool:
        """Return whether it was modified in place since it was made."""
        ...


def read(tensor: Tensor | LazyTensor, *where: Index) -> Tensor:
    """Return the part of a tensor at an index for each of its first axes.

    It is a view if all of them are ranges and the tensor is in memory.
    """
    if not isinstance(tensor, Tensor):
        return tensor.read(*where)
    for axis, index in enumerate(where):
        tensor = take(tensor, axis, index)
    return tensor


def take(tensor: Tensor, axis: int, index: Index) -> Tensor:
    """Index an axis; a view for a range."""
    if isinstance(index, range):
        where = (slice(None),) * axis
        return tensor[(*where, slice(index.start, index.stop, index.step))]
    return tensor.index_select(axis, index.to(tensor.device))


def put(tensor: Tensor, axis: int, index: Index, values: Tensor) -> None:
    """Write values at an index of an axis."""
    if isinstance(index, range):
        take(tensor, axis, index).copy_(values)
    else:
        tensor.index_copy_(axis, index.to(tensor.device), values)


def as_tensor(index: Index) -> Tensor:
    """Return an index as a tensor, [places], on the CPU."""
    if isinstance(index, range):
        return torch.arange(index.start, index.stop, index.step, device="cpu")
    return index
