"""PyTorch's fused kernels with their log-sum-exp, forward and backward.

`scaled_dot_product_attention` doesn't return the log-sum-exp; the operators below it do. Their
backward takes any output and log-sum-exp: given those of *all* keys, it returns the gradient of a
part of the keys.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

_aten = torch.ops.aten


class Piece(NamedTuple):
    """The arguments of a kernel, all of one head size.

    `mask` is additive and broadcasts over rectangles and heads; `causal` needs square pieces.
    """

    query: Float[Tensor, "rectangles heads queries dim"]
    key: Float[Tensor, "rectangles heads keys dim"]
    value: Float[Tensor, "rectangles heads keys dim"]
    mask: Float[Tensor, "... queries keys"] | None
    causal: bool
    scale: float


def available(tensor: Tensor) -> bool:
    """Whether there is a kernel for this device."""
    return tensor.device.type in ("cpu", "cuda")


def forward(piece: Piece) -> tuple[Tensor, Tensor]:
    """Return output and log-sum-exp of a piece.

    Returns:
        [rectangles, heads, queries, dim] and [rectangles, heads, queries, 1], −inf for rows whose
        keys are all masked.
    """
    query, key, value, mask, causal, scale = piece
    if query.device.type == "cpu":
        output, lse = _aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, causal, attn_mask=mask, scale=scale
        )
    else:
        output, lse, _, _ = _aten._scaled_dot_product_efficient_attention(
            query, key, value, _aligned(piece), True, 0.0, causal, scale=scale
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
    piece: Piece,
    grad: Float[Tensor, "rectangles heads queries dim"],
    output: Float[Tensor, "rectangles heads queries dim"],
    lse: Float[Tensor, "rectangles heads queries 1"],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of query, key and value, given output and lse of the whole rows."""
    query, key, value, mask, causal, scale = piece
    if query.device.type == "cpu":
        return _aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, query, key, value, output, lse[..., 0], 0.0, causal, attn_mask=mask, scale=scale
        )
    # The kernel reads the log-sum-exp in rows of a multiple of 32.
    padded = pad(lse[..., 0].float(), (0, -lse.shape[2] % 32))
    none = torch.zeros((), dtype=torch.long, device=query.device)
    mask, wanted = _aligned(piece), [True, True, True, False]
    found = _aten._scaled_dot_product_efficient_attention_backward(
        grad, query, key, value, mask, output, padded, none, none, 0.0, wanted, causal, scale=scale
    )
    return found[:3]


def _aligned(piece: Piece) -> Tensor | None:
    """Return the mask in the shape, dtype and alignment that the CUDA kernel needs."""
    if piece.mask is None:
        return None
    num_keys = piece.key.shape[2]
    aligned = pad(piece.mask.to(piece.query.dtype), (0, -num_keys % 8))
    return aligned[..., :num_keys].expand(*piece.query.shape[:3], num_keys)
