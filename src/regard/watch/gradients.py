"""Gradients of the outputs of calls, taken down as backward passes bring them."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from regard.calls.output_gradient import OutputGradient


def let_flow(original: Tensor) -> None:
    """Make a tensor that needs no gradient need one, as it does where all parameters are frozen.

    Adding −0 leaves every number as it is, bit by bit. A leaf, which `requires_grad_` would make of
    it, may not be modified in place, and some models do that.
    """
    if original.requires_grad:
        return
    with torch.enable_grad():
        zero = torch.full((), -0.0, dtype=original.dtype, device=original.device)
        original.add_(zero.requires_grad_())


def follow(
    gradient: OutputGradient,
    output: Float[Tensor, "batch heads queries value_dim"],
    original: Tensor,
    offload: str | None,
) -> None:
    """Add the gradients of what a kernel has returned to those of a call.

    Args:
        gradient: those of the call.
        output: the output of the call.
        original: the tensor of which it is a view, which the model gets.
        offload: the device to which gradients are moved, if to another.
    """
    laid_out = laid_out_as(output, original)
    if laid_out is None:
        gradient.problem = "its output is computed in a way that gradients can't be read from"
        return

    def add(grad: Tensor) -> None:
        with torch.no_grad():
            mine = laid_out(grad.detach())
            gradient.add(mine if offload is None else mine.to(offload))

    original.register_hook(add)


def laid_out_as(
    view: Float[Tensor, "batch heads queries value_dim"], original: Tensor
) -> Callable[[Tensor], Float[Tensor, "batch heads queries value_dim"]] | None:
    """Return a function that lays a copy of a tensor like `original` out as `view` is of it.

    Args:
        view: the output of a call.
        original: the tensor of which it is a view.

    Returns:
        The function, which holds neither; None if one is no view of the other.
    """
    memory = [x.untyped_storage().data_ptr() for x in (view, original)]
    if memory[0] != memory[1] or view.numel() != original.numel() or _overlaps(original):
        return None
    shape, stride = original.shape, original.stride()
    view_shape, view_stride = view.shape, view.stride()
    offset = view.storage_offset() - original.storage_offset()

    def laid_out(tensor: Tensor) -> Tensor:
        copied = torch.empty_strided(shape, stride, dtype=tensor.dtype, device=tensor.device)
        return copied.copy_(tensor).as_strided(view_shape, view_stride, offset)

    return laid_out


def _overlaps(tensor: Tensor) -> bool:
    """Say whether two places of a tensor may be the same memory."""
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride < reach:
                return True
            reach = stride * (size - 1) + reach
    return False
