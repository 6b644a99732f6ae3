"""Attention with materialised scores, for biases that no fused kernel supports.

The signatures are those of `kernels`, with a function of the scores instead of a mask.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.kernels import Piece

Adjust = Callable[[Tensor], Tensor]
"""Map products to scores, −inf where a pair is masked."""


def forward(piece: Piece, adjust: Adjust) -> tuple[Tensor, Tensor]:
    """Return output and log-sum-exp of a piece, like `kernels.forward`."""
    scores = _scores(piece.query, piece.key, piece.scale, adjust)
    lse = scores.logsumexp(dim=-1, keepdim=True)
    weights = torch.exp(scores - lse.masked_fill(lse == -torch.inf, 0.0))
    return (weights @ piece.value.to(weights.dtype)).to(piece.value.dtype), lse


def backward(
    piece: Piece,
    adjust: Adjust,
    grad: Float[Tensor, "rectangles heads queries dim"],
    output: Float[Tensor, "rectangles heads queries dim"],
    lse: Float[Tensor, "rectangles heads queries 1"],
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
        query, key, value = (x.detach().requires_grad_() for x in piece[:3])
        weights = torch.exp(_scores(query, key, piece.scale, adjust) - lse)
        total = (weights * (grad @ value.to(lse.dtype).mT - rowsum)).sum()
        tensors = [query, key, value, *learned]
        return torch.autograd.grad(total, tensors, allow_unused=True, materialize_grads=True)


def _scores(query: Tensor, key: Tensor, scale: float, adjust: Adjust) -> Tensor:
    dtype = torch.promote_types(query.dtype, torch.float32)
    return adjust(scale * query.to(dtype) @ key.to(dtype).mT)
