"""One kernel call with its log-sum-exp, forward and backward.

`scaled_dot_product_attention` doesn't return the log-sum-exp; PyTorch's operators below it do.
Their backward takes any output and log-sum-exp: given those of *all* keys, it returns the gradient
of a part of the keys (`block_sparse` has the derivation).

A bias that no fused kernel supports changes the scores. They are materialised then, and both passes
are written out with the same signatures.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

_aten = torch.ops.aten

AdjustScores = Callable[[Tensor], Tensor]
"""Map products to scores, −inf where a pair is masked."""


class KernelCall(NamedTuple):
    """The arguments of a kernel, all of one head size.

    Attributes:
        query: the queries of each rectangle.
        key: their keys.
        value: their values.
        mask: additive; broadcasts over rectangles and heads.
        causal: whether to use the kernel's causal mask, which needs as many keys as queries.
        scale: factor on the products.
        adjust: maps products to scores, which are materialised; then there is no mask.
    """

    query: Float[Tensor, "rectangles heads queries dim"]
    key: Float[Tensor, "rectangles heads keys dim"]
    value: Float[Tensor, "rectangles heads keys dim"]
    mask: Float[Tensor, "... queries keys"] | None
    causal: bool
    scale: float
    adjust: AdjustScores | None = None


def available(tensor: Tensor) -> bool:
    """Whether there is a fused kernel for this device."""
    return tensor.device.type in ("cpu", "cuda")


def forward(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Return output and log-sum-exp of a call.

    Returns:
        [rectangles, heads, queries, dim] and [rectangles, heads, queries, 1], −inf for rows whose
        keys are all masked.
    """
    if call.adjust is not None:
        return _eager_forward(call, call.adjust)
    query, key, value, mask, causal, scale, _ = call
    if query.device.type == "cpu":
        output, lse = _aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, causal, attn_mask=mask, scale=scale
        )
    else:
        output, lse, _, _ = _aten._scaled_dot_product_efficient_attention(
            query, key, value, _aligned_mask(call), True, 0.0, causal, scale=scale
        )
        lse = lse[..., : query.shape[2]]
    lse = lse[..., None]
    if mask is None:
        return output, lse

    # Kernels differ in the lse of fully masked rows. The CPU's is 0, so if no row has 0 there is no
    # such row, and the mask need not be searched.
    if query.device.type == "cpu" and not bool((lse == 0.0).any()):
        return output, lse
    empty = mask.amax(dim=-1, keepdim=True) == -torch.inf
    return output.masked_fill(empty, 0.0), lse.masked_fill(empty, -torch.inf)


def backward(
    call: KernelCall,
    grad: Float[Tensor, "rectangles heads queries dim"],
    output: Float[Tensor, "rectangles heads queries dim"],
    lse: Float[Tensor, "rectangles heads queries 1"],
    learned: Sequence[Tensor] = (),
) -> tuple[Tensor, ...]:
    """Return gradients, given output and lse of the whole rows.

    Args:
        call: the call.
        grad: the gradient of the output of the whole rows.
        output: that output.
        lse: their log-sum-exp.
        learned: tensors that `call.adjust` reads and that need a gradient.

    Returns:
        The gradients of query, key and value; with `adjust`, those of `learned` follow.
    """
    if call.adjust is not None:
        return _eager_backward(call, call.adjust, grad, output, lse, learned)
    query, key, value, mask, causal, scale, _ = call
    if query.device.type == "cpu":
        return _aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, query, key, value, output, lse[..., 0], 0.0, causal, attn_mask=mask, scale=scale
        )
    # The kernel reads the log-sum-exp in rows of a multiple of 32.
    lse_rows = pad(lse[..., 0].float(), (0, -lse.shape[2] % 32))
    mask = _aligned_mask(call)
    no_seed = torch.zeros((), dtype=torch.long, device=query.device)
    needed = [True, True, True, False]
    gradients = _aten._scaled_dot_product_efficient_attention_backward(
        grad, query, key, value, mask, output, lse_rows, no_seed, no_seed, 0.0, needed, causal,
        scale=scale,
    )  # fmt: skip
    return gradients[:3]


def _aligned_mask(call: KernelCall) -> Tensor | None:
    """Return the mask in the shape, dtype and alignment that the CUDA kernel needs."""
    if call.mask is None:
        return None
    num_keys = call.key.shape[2]
    aligned = pad(call.mask.to(call.query.dtype), (0, -num_keys % 8))
    return aligned[..., :num_keys].expand(*call.query.shape[:3], num_keys)


def _eager_forward(call: KernelCall, adjust: AdjustScores) -> tuple[Tensor, Tensor]:
    scores = _scores(call.query, call.key, call.scale, adjust)
    lse = scores.logsumexp(dim=-1, keepdim=True)
    weights = torch.exp(scores - lse.masked_fill(lse == -torch.inf, 0.0))
    return (weights @ call.value.to(weights.dtype)).to(call.value.dtype), lse


def _eager_backward(
    call: KernelCall,
    adjust: AdjustScores,
    grad: Tensor,
    output: Tensor,
    lse: Tensor,
    learned: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    """Return the gradients of query, key and value, and of the `learned` tensors of `adjust`.

    With w = exp(score − lse), the gradient of a score is w · (grad · value − rowsum), where rowsum
    is that of grad · output. That is also the derivative of Σ w · (grad · value − rowsum) with lse
    and rowsum constant, so autograd differentiates that sum through `adjust`.
    """
    grad, output = grad.to(lse.dtype), output.to(lse.dtype)
    rowsum = (grad * output).sum(dim=-1, keepdim=True)
    with torch.enable_grad():
        query, key, value = (x.detach().requires_grad_() for x in call[:3])
        weights = torch.exp(_scores(query, key, call.scale, adjust) - lse)
        total = (weights * (grad @ value.to(lse.dtype).mT - rowsum)).sum()
        tensors = [query, key, value, *learned]
        return torch.autograd.grad(total, tensors, allow_unused=True, materialize_grads=True)


def _scores(query: Tensor, key: Tensor, scale: float, adjust: AdjustScores) -> Tensor:
    dtype = torch.promote_types(query.dtype, torch.float32)
    return adjust(scale * query.to(dtype) @ key.to(dtype).mT)
