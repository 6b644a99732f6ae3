"""Attention through several layers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.matrix.arguments import checked_indices
from regard.matrix.matrix import AttentionMatrix
from regard.matrix.products import dense, sums_over_rows
from regard.matrix.tiles import BUDGET
from regard.matrix.view import AXES, View


def rollout(
    matrices: Sequence[AttentionMatrix],
    *,
    tokens: Sequence[int] | Int[Tensor, "tokens"],
    residual: float = 0.5,
    heads: Literal["mean", "max", "min"] | Float[Tensor, "heads"] = "mean",
) -> Float[Tensor, "tokens sequence"] | Float[Tensor, "batch tokens sequence"]:
    """Follow attention from some tokens of the last layer to the input (Abnar and Zuidema, 2020).

    Each layer keeps a share `residual` of a token, and mixes the rest by the attention of its
    heads, M = residual · I + (1 − residual) · A. The rows of M_last … M_1 for the tokens are
    computed by vector–matrix products from the last layer on, without an n × n matrix.

    Args:
        matrices: one for each layer, the first layer first: [batch, heads, sequence, sequence], or
            without the batch axis.
        tokens: the tokens of the last layer to start from.
        residual: the share of the residual stream.
        heads: how to combine heads: their mean, or the largest or smallest of each weight, with
            rows normalised to 1; or a weight for each head, which should sum to 1.

    Returns:
        [batch, tokens, sequence], or [tokens, sequence] if the matrices have no batch axis: the
        contribution of each input token. The share of sinks is lost.

    Raises:
        TypeError: an argument has the wrong kind.
        ValueError: the matrices aren't square or don't fit together.

    >>> import torch, regard
    >>> x = torch.zeros(1, 2, 3, 8)
    >>> layer = regard.AttentionMatrix(x, x, pattern=regard.causal())
    >>> regard.rollout([layer, layer], tokens=[2])
    tensor([[[0.3194, 0.2361, 0.4444]]])
    """
    # 1. Check the arguments.
    views = [_checked(matrix, number, matrices) for number, matrix in enumerate(matrices)]
    if not views:
        raise ValueError("matrices must have at least one layer, got none")
    if not 0.0 <= residual <= 1.0:
        raise ValueError(f"residual must be from 0 to 1, got {residual}")
    share = _shares(heads, views[0])
    batch, _, length, _ = views[0].sizes
    numbers = checked_indices(tokens, "tokens", length, "tokens")

    # 2. Start with a row of 0s and a 1 for each token.
    source = views[0].source
    passed = torch.zeros(batch, len(numbers), length, dtype=source.dtype, device=source.device)
    passed[:, torch.arange(len(numbers), device="cpu"), numbers] = 1.0

    # 3. Multiply it by the layers, the last one first.
    with torch.no_grad(), torch.autocast(source.device.type, enabled=False):
        for view in reversed(views):
            if isinstance(share, Tensor):
                mixed = _mean(view, passed, share)
            else:
                mixed = _extreme(view, passed, share)
            passed = residual * passed + (1.0 - residual) * mixed
    return passed if "batch" in views[0].axes else passed[0]


def _mean(
    view: View, passed: Float[Tensor, "batch tokens sequence"], share: Float[Tensor, "heads"]
) -> Float[Tensor, "batch tokens sequence"]:
    """Return passed @ A, where A is the weighted sum of the heads."""
    share = share.to(passed)
    mixed = sums_over_rows(passed[:, None], replace(view, axes=AXES))
    return torch.einsum("h,bhtn->btn", share, mixed)


def _extreme(
    view: View, passed: Float[Tensor, "batch tokens sequence"], how: Literal["max", "min"]
) -> Float[Tensor, "batch tokens sequence"]:
    """Return passed @ A, where A has the largest or smallest weight of the heads."""
    batch, num_heads, length, _ = view.sizes
    rows = max(1, BUDGET // 4 // max(1, batch * num_heads * length * passed.element_size()))
    mixed = torch.zeros_like(passed)
    for first in range(0, length, rows):
        part = slice(first, first + rows)
        weights = dense(replace(view, queries=view.queries[part], axes=AXES), BUDGET)
        weights = weights.amax(dim=1) if how == "max" else weights.amin(dim=1)
        total = weights.sum(dim=2, keepdim=True)
        mixed += passed[..., part] @ (weights / total.masked_fill(total == 0.0, 1.0))
    return mixed


def _shares(
    heads: Literal["mean", "max", "min"] | Tensor, view: View
) -> Tensor | Literal["max", "min"]:
    num_heads = view.sizes[1]
    if isinstance(heads, Tensor):
        if heads.shape != (num_heads,) or not heads.is_floating_point():
            raise ValueError(
                f"heads must have one weight for each of {num_heads} heads, "
                f"got {heads.dtype} of shape {list(heads.shape)}"
            )
        return heads
    if heads not in ("mean", "max", "min"):
        raise ValueError(f"heads must be 'mean', 'max', 'min' or a tensor, got {heads!r}")
    if heads == "mean":
        return torch.full(
            (num_heads,), 1.0 / max(1, num_heads), dtype=view.source.dtype, device="cpu"
        )
    return heads


def _checked(matrix: AttentionMatrix, number: int, matrices: Sequence[AttentionMatrix]) -> View:
    if not isinstance(matrix, AttentionMatrix):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"matrices must be AttentionMatrix objects, got {type(matrix).__name__} "
            f"at {number}; for a tensor use AttentionMatrix.from_weights(tensor)"
        )
    if "heads" not in matrix.axes or matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(
            "matrices must have the axes heads, queries and keys, as many queries as keys, "
            f"got {matrix!r} at {number}"
        )
    if matrix.shape != matrices[0].shape:
        raise ValueError(
            f"matrices must have one shape, got {list(matrix.shape)} at {number} "
            f"and {list(matrices[0].shape)} at 0"
        )
    return matrix.view
