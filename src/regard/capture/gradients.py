"""Collect the gradients of the outputs of calls in backward passes."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from regard.calls.outputs import OutputGradient


def require_grad(original: Tensor) -> None:
    """Make a tensor require a gradient, as needed if all parameters are frozen.

    Adding −0 keeps every bit; +0 would turn −0 into +0. `requires_grad_` would make the tensor a
    leaf, which must not be modified in place, and some models do that.
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
    """Add the gradients of a kernel's output to those of a call.

    Args:
        gradient: the gradients of the call.
        output: the output of the call.
        original: the kernel's result, of which the output is a view.
        offload: the device for gradients, if another.
    """
    laid_out = laid_out_as(output, original)
    if laid_out is None:
        gradient.problem = "its output is not a view of the kernel's result"
        return

    def add(grad: Tensor) -> None:
        with torch.no_grad():
            output_grad = laid_out(grad.detach())
            gradient.add(output_grad if offload is None else output_grad.to(offload))

    original.register_hook(add)


def laid_out_as(
    view: Float[Tensor, "batch heads queries value_dim"], original: Tensor
) -> Callable[[Tensor], Float[Tensor, "batch heads queries value_dim"]] | None:
    """Return a function that views a tensor like `original` as `view` views it.

    A kernel returns its gradient in the shape of `original`, and the call's output is a view:

        original    [batch, queries, heads · dim]
        view        original.view(batch, queries, heads, dim).transpose(1, 2)

    The functions between the two are not known, but their strides are. So a gradient is copied to
    memory with the strides of `original`, and viewed with the shape, strides and offset of `view`.
    Each element is then where the view has it, if no two elements of `original` share memory.

    Args:
        view: the output of a call.
        original: the tensor of which it is a view.

    Returns:
        The function, which references neither; None if `view` is not a view of `original`.
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
    """Return whether two elements of a tensor may share memory."""
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride < reach:
                return True
            reach = stride * (size - 1) + reach
    return False
