"""Block-sparse attention: fused kernels on the allowed blocks, joined by log-sum-exp.

A kernel computes some keys of a row, and returns its output and log-sum-exp over these alone:

    keys     part 1     part 2     part 3
    row     (o₁, L₁)   (o₂, L₂)   (o₃, L₃)        o_p = Σ_{j in p} e^(s_j − L_p) · v_j

Since e^(L_p − L) · o_p = Σ_{j in p} e^(s_j − L) · v_j, the whole row is

    L = log Σ e^(L_p)        o = Σ e^(L_p − L) · o_p

One part is joined after another, as in online softmax (Milakov and Gimelshein, "Online normalizer
calculation for softmax", 2018). Nothing overflows, because L_p ≤ L.

Backward, nothing is joined. With g the gradient of o, and weights w_j = e^(s_j − L), the gradients
of a row are those of FlashAttention (Dao et al., 2022):

    score s_j: w_j · (g·v_j − g·o)        value v_j: w_j · g

They need o and L of the whole row, and of the keys only the one at hand. So each part's kernel gets
the o and L of whole rows, and the gradients of the parts are summed.

If L has a gradient h too, the gradient of a score has the term h · w_j. The kernel knows no h, but
it subtracts D = g·o. One more column makes that g·o − h, and changes nothing else:

    g′ = [g, 1]    o′ = [o, −h]    v′ = [v, 0]    q′ = [q, 0]    k′ = [k, 0]

    D′ = g′·o′ = g·o − h        g′·v′_j = g·v_j        q′·k′_j = q·k_j

Cost: time as the number of computed pairs, and some passes over the rows of each part to join them;
memory O(n · d), plus the budget of one kernel call. Parts are joined in float32, or in float64 for
float64 inputs: half precision would round at every join.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from regard.attention import kernels
from regard.attention.call import Attention, Lse, Output
from regard.attention.kernel_calls import (
    add_to_rows,
    kernel_calls,
    put_rows,
    take_rows,
    writes_scores,
)
from regard.internals import warm_up_mkl
from regard.patterns import Layout
from regard.patterns import layout as layout_of
from regard.patterns.layout import consecutive_layout

FORWARD_BLOCK = 64
BACKWARD_BLOCK = 192
"""Queries per block on the CPU. A small block wastes fewer pairs; but the backward kernel processes
64 rows at a time only from 192 rows on, and 32 below."""

GPU_BLOCK = 128


@dataclass(frozen=True)
class Layouts:
    """The layouts of a call.

    Attributes:
        forward: layout of the forward pass.
        backward: makes the layout of the backward pass, whose blocks may differ.
        causal: whether the layout is one square strip, masked by the kernel's causal mask.
    """

    forward: Layout
    backward: Callable[[], Layout]
    causal: bool = False


def obstacle(inputs: Attention, lse: bool) -> str | None:
    """Return why this backend doesn't support a call, or None if it does."""
    if inputs.dropout:
        return "its kernels have no dropout"
    if not kernels.available(inputs.tensors[0]) and not writes_scores(inputs):
        return f"PyTorch has no kernel that returns the log-sum-exp on {inputs.query.device.type}"
    return None


def run(inputs: Attention, lse: bool) -> tuple[Output, Lse]:
    """Return the output of attention and the log-sum-exp of each row."""
    forward = layout_for(inputs, backward=False)
    return attend_joined(inputs, Layouts(forward, lambda: layout_for(inputs, backward=True)))


def block_size(device: torch.device, *, backward: bool) -> int:
    """Return the number of queries per block."""
    if device.type != "cpu":
        return GPU_BLOCK
    return BACKWARD_BLOCK if backward else FORWARD_BLOCK


def layout_for(inputs: Attention, *, backward: bool) -> Layout:
    """Return the strips of one of the passes."""
    block = block_size(inputs.query.device, backward=backward)
    pattern, first = inputs.pattern, inputs.first_position
    if first is None:
        if block not in inputs.layouts:
            positions = inputs.query_positions
            inputs.layouts[block] = layout_of(pattern, positions, inputs.num_keys, block=block)
        return inputs.layouts[block]
    return consecutive_layout(pattern, first, inputs.num_queries, inputs.num_keys, block)


def attend_joined(inputs: Attention, layouts: Layouts) -> tuple[Output, Lse]:
    """Return the output of attention and the log-sum-exp of each row."""
    warm_up_mkl()
    tensors = () if inputs.bias is None else inputs.bias.tensors
    output, lse = _Joined.apply(inputs, layouts, *map(readable, same_head_size(inputs)), *tensors)
    return output[..., : inputs.value_dim], lse


def same_head_size(inputs: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """Zero-pad query, key and value to one head size, as the kernels need."""
    query, key, value = inputs.tensors
    missing = value.shape[-1] - key.shape[-1]
    if missing > 0:
        query, key = pad(query, (0, missing)), pad(key, (0, missing))
    elif missing < 0:
        value = pad(value, (0, -missing))
    return query, key, value


def join(
    inputs: Attention,
    layout: Layout,
    tensors: tuple[Tensor, Tensor, Tensor],
    output: Float[Tensor, "batch heads queries dim"],
    lse: Float[Tensor, "batch heads queries 1"],
    *,
    causal: bool = False,
) -> None:
    """Join the keys of a layout into the output and log-sum-exp so far, in place.

    Args:
        inputs: the inputs.
        layout: the strips.
        tensors: query, key and value, of one head size.
        output: the output so far; strips that are fresh don't read it.
        lse: its log-sum-exp.
        causal: whether to use the kernel's causal mask.
    """
    for call in kernel_calls(inputs, layout, *tensors, causal=causal, backward=False):
        part, part_lse = call.forward()
        rows, outputs, sums = call.strip.queries, output[call.batch], lse[call.batch]
        if not call.strip.fresh:
            before, before_lse = take_rows(outputs, rows), take_rows(sums, rows)
            both = torch.logaddexp(before_lse, part_lse)
            part = before * _part_weight(before_lse, both) + part * _part_weight(part_lse, both)
            part_lse = both
        put_rows(outputs, rows, part)
        put_rows(sums, rows, part_lse)


class WholeRows(NamedTuple):
    """What the backward pass of any part of the keys needs of the whole rows."""

    grad: Float[Tensor, "batch heads queries dim"]
    output: Float[Tensor, "batch heads queries dim"]
    lse: Float[Tensor, "batch heads queries 1"]


def whole_rows(
    output: Float[Tensor, "batch heads queries dim"],
    lse: Lse,
    grad: Float[Tensor, "batch heads queries dim"] | None,
    grad_lse: Lse | None,
) -> WholeRows:
    """Return what the backward pass needs; with one more column if the lse has a gradient.

    The caller pads queries, keys and values with zeros to the same width.
    """
    lse = lse[..., None]
    grad = torch.zeros_like(output) if grad is None else readable(grad)
    if grad_lse is not None:
        grad = pad(grad, (0, 1), value=1.0)
        column = torch.where(lse > -torch.inf, -grad_lse[..., None], 0.0)
        output = torch.cat([output, column.to(output.dtype)], dim=-1)
    return WholeRows(grad, output, _finite(lse))


def add_gradients(
    inputs: Attention,
    layout: Layout,
    tensors: tuple[Tensor, Tensor, Tensor],
    whole: WholeRows,
    sums: Sequence[Tensor],
    biases: tuple[Sequence[Tensor], Sequence[Tensor]],
    *,
    causal: bool = False,
) -> None:
    """Add the gradients of the keys of a layout to sums, in place.

    Args:
        inputs: the inputs.
        layout: the strips.
        tensors: query, key and value, of one head size.
        whole: output, log-sum-exp and gradient of the rows over all keys.
        sums: the gradients of query, key and value so far; strips that are fresh don't read the
            first.
        biases: learned tensors of the bias, and their gradients so far.
        causal: whether to use the kernel's causal mask.
    """
    learned, learned_sums = biases
    for call in kernel_calls(inputs, layout, *tensors, causal=causal, backward=True):
        rows, batch = call.strip.queries, call.batch
        grad, output, lse = (take_rows(x[batch], rows) for x in whole)
        grad_query, grad_key, grad_value, *grad_bias = call.backward(grad, output, lse, learned)

        (put_rows if call.strip.fresh else add_to_rows)(sums[0][batch], rows, grad_query)
        add_to_rows(sums[1][batch], call.strip.keys, grad_key)
        add_to_rows(sums[2][batch], call.strip.keys, grad_value)
        for total, part in zip(learned_sums, grad_bias, strict=bool(grad_bias)):
            total += part


class _Joined(torch.autograd.Function):
    """The kernel calls of one call of attention, with their exact gradient."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        inputs: Attention, layouts: Layouts, *tensors: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return output and log-sum-exp of query, key and value; tensors of the bias follow."""
        query, key, value = tensors[:3]
        layout = layouts.forward
        # Join parts in the dtype of the sums: half precision would round at every join.
        joins = any(not strip.fresh for strip in layout.strips)
        output = empty(query, inputs.lse_dtype if joins else query.dtype)
        lse = empty(query[..., :1], inputs.lse_dtype)
        if not layout.starts_all:
            output.zero_()
            lse.fill_(-torch.inf)
        join(inputs, layout, (query, key, value), output, lse, causal=layouts.causal)
        return output.to(query.dtype), lse[..., 0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.inputs, ctx.layouts = inputs[:2]
        # Save the bias so that autograd notices if it was modified before the backward pass.
        ctx.save_for_backward(*inputs[2:5], *output, *inputs[5:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad: Tensor | None, grad_lse: Tensor | None
    ) -> tuple[Any, ...]:
        query, key, value, output, lse, *bias = ctx.saved_tensors
        needed = tuple(ctx.needs_input_grad[2:])
        tensors = (query, key, value, output, lse, grad, grad_lse, *bias)
        return None, None, *_Gradient.apply(ctx.inputs, ctx.layouts, needed, *tensors)

    @staticmethod
    def vmap(  # pyright: ignore[reportIncompatibleMethodOverride]
        info: Any, in_dims: Any, inputs: Attention, layouts: Layouts, *tensors: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int, int]]:
        """Fold the mapped axis into the batch."""
        bias = tensors[3:]
        inputs, folded = _fold_mapped(info, inputs, tensors[:3], in_dims[2:], bias)
        results = _Joined.apply(inputs, layouts, *folded, *bias)
        return tuple(x.unflatten(0, (info.batch_size, -1)) for x in results), (0, 0)


class _Gradient(torch.autograd.Function):
    """The gradient of `_Joined`, which is not differentiable again."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        inputs: Attention, layouts: Layouts, needed: tuple[bool, ...], *tensors: Any
    ) -> tuple[Tensor | None, ...]:
        query, key, value, output, lse, grad, grad_lse, *bias = tensors

        # 1. Whole rows, all tensors with the column of the lse if it has a gradient.
        dim = query.shape[-1]
        whole = whole_rows(output, lse, grad, grad_lse)
        if grad_lse is not None:
            query, key, value = (pad(x, (0, 1)) for x in (query, key, value))

        # 2. Sums, at 0 unless the first strip of each row writes them.
        layout = layouts.backward()
        sums = [empty(x, inputs.lse_dtype) for x in (query, key, value)]
        for total in sums[layout.starts_all :]:
            total.zero_()
        learned = [tensor for tensor, learns in zip(bias, needed[3:], strict=True) if learns]
        learned_sums = [torch.zeros_like(tensor, dtype=inputs.lse_dtype) for tensor in learned]

        # 3. The gradients of all parts.
        biases = (learned, learned_sums)
        add_gradients(
            inputs, layout, (query, key, value), whole, sums, biases, causal=layouts.causal
        )
        grads = [total[..., :dim].to(query.dtype) for total in sums]
        of_bias = iter(total.to(t.dtype) for total, t in zip(learned_sums, learned, strict=True))
        return *grads, *(next(of_bias) if learns else None for learns in needed[3:])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Save nothing."""

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        raise NotImplementedError(
            "PyTorch's fused kernels have no second derivatives: "
            'call attend(..., backend="reference"), which materialises all scores'
        )

    @staticmethod
    def vmap(  # pyright: ignore[reportIncompatibleMethodOverride]
        info: Any,
        in_dims: Any,
        inputs: Attention,
        layouts: Layouts,
        needed: tuple[bool, ...],
        *tensors: Any,
    ) -> tuple[tuple[Tensor | None, ...], tuple[int | None, ...]]:
        """Fold the mapped axis into the batch."""
        bias = tensors[7:]
        inputs, folded = _fold_mapped(info, inputs, tensors[:7], in_dims[3:], bias)
        if any(needed[3:]):
            raise ValueError("torch.vmap can't map over the gradient of a bias")
        results = _Gradient.apply(inputs, layouts, needed, *folded, *bias)
        grads = [None if x is None else x.unflatten(0, (info.batch_size, -1)) for x in results]
        return tuple(grads), tuple(None if x is None else 0 for x in grads)


def _fold_mapped(
    info: Any,
    inputs: Attention,
    tensors: Sequence[Tensor | None],
    axes: Sequence[int | None],
    bias: Sequence[Tensor],
) -> tuple[Attention, list[Any]]:
    """Fold the axis that `torch.vmap` maps over into the batch.

    Args:
        info: vmap's info.
        inputs: the inputs of one entry of the mapped axis.
        tensors: query, key, value and others, [batch, ...] with the mapped axis.
        axes: index of the mapped axis in each; None where it has none.
        bias: tensors of the bias.

    Returns:
        The inputs of all entries, and the tensors.

    Raises:
        ValueError: the pattern or bias has a batch axis, or the bias is mapped.
    """
    by_sequence = inputs.pattern.batch_size or (inputs.bias is not None and inputs.bias.batch_size)
    if by_sequence or any(axis is not None for axis in axes[len(axes) - len(bias) :] if bias):
        raise ValueError(
            "torch.vmap supports neither a pattern or bias with a batch axis nor a mapped bias: "
            "fold the mapped axis into the batch and call attend once"
        )
    folded: list[Any] = []
    for x, axis in zip(tensors, axes, strict=False):
        if x is not None:
            x = x.expand(info.batch_size, *x.shape) if axis is None else x.movedim(axis, 0)
            x = readable(x.flatten(0, 1))
        folded.append(x)
    query, key, value = folded[:3]
    return replace(inputs, query=query, key=key, value=value), folded


def readable(x: Tensor) -> Tensor:
    """Return x with a contiguous last axis, which the kernels assume."""
    return x if x.stride(-1) == 1 else x.contiguous()


def empty(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return an empty tensor of x's shape, in memory [batch, sequence, heads, dim]."""
    batch, heads, length, dim = x.shape
    return x.new_empty(batch, length, heads, dim, dtype=dtype).transpose(1, 2)


def _part_weight(part_lse: Tensor, lse: Tensor) -> Tensor:
    """Return e^(L_p − L)."""
    return torch.exp(part_lse - _finite(lse))


def _finite(lse: Tensor) -> Tensor:
    """Replace −inf, the lse of fully masked rows, by 0; their weights stay 0."""
    return lse.masked_fill(lse == -torch.inf, 0.0)
