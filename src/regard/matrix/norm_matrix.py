"""`NormMatrix`: weights times the norms of the projected values, as a lazy value."""

from dataclasses import replace
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from regard.matrix.derived import Norms
from regard.matrix.lazy_matrix import LazyMatrix
from regard.matrix.matrix import AttentionMatrix


class NormMatrix(LazyMatrix):
    """The norm of what each pair adds to the output: A[i, j] · ‖v_j W_O‖ for each head.

    A weight counts only as much as the value behind it: where a head attends to a token that
    carries little, the weight is large and the norm small (Kobayashi et al., 2020, "Attention is
    Not Only a Weight"). Rows have any sum.

    It stores no n × n numbers, and is indexed and summarised like an `AttentionMatrix`. `Entropy`,
    `EffectiveKeys` and `Distance` need weights, and raise an error.

    Args:
        weights: the attention matrix, [batch, heads, queries, keys].
        value: [batch, key_heads, keys, value_dim].
        projection: the output projection of each head, [heads, value_dim, model_dim].

    Raises:
        ValueError: weights are a part of a matrix, or value or projection has another shape.

    >>> import torch, regard
    >>> query, key, value = torch.randn(3, 1, 2, 100, 16)
    >>> weights = regard.AttentionMatrix(query, key, pattern=regard.causal())
    >>> regard.matrix.NormMatrix(weights, value, torch.randn(2, 16, 32))
    NormMatrix(1 batch × 2 heads × 100 queries × 100 keys, float32, causal())
    """

    def __init__(
        self,
        weights: AttentionMatrix,
        value: Float[Tensor, "batch key_heads keys value_dim"],
        projection: Float[Tensor, "heads value_dim model_dim"],
    ) -> None:
        view = weights.view
        batch, heads, _, keys = view.source.shape
        if view.shape != view.source.shape:
            raise ValueError(f"weights must be a whole matrix, got a part: {weights!r}")
        if value.dim() != 4 or value.shape[0] != batch or value.shape[2] != keys:
            raise ValueError(
                f"value must have the shape [{batch}, key_heads, {keys}, value_dim], "
                f"got {list(value.shape)}"
            )
        if not value.shape[1] or heads % value.shape[1]:
            raise ValueError(f"value must have a divisor of {heads} heads, got {value.shape[1]}")
        if projection.dim() != 3 or projection.shape[:2] != (heads, value.shape[3]):
            raise ValueError(
                f"projection must have the shape [{heads}, {value.shape[3]}, model_dim], "
                f"got {list(projection.shape)}"
            )
        norms = _norms(value.to(weights.dtype), projection.to(weights.dtype).to(value.device))
        self._view = replace(view, source=Norms(view.source, norms))

    @property
    def weights(self) -> AttentionMatrix:
        """The weights of the same part."""
        source = cast(Norms, self._view.source).weights
        return AttentionMatrix.of(replace(self._view, source=source))


@torch.no_grad()
def _norms(
    value: Float[Tensor, "batch key_heads keys value_dim"],
    projection: Float[Tensor, "heads value_dim model_dim"],
) -> Float[Tensor, "batch heads keys"]:
    group = len(projection) // value.shape[1]
    with torch.autocast(value.device.type, enabled=False):
        # A head at a time: [batch, keys, model_dim] each.
        norms = [
            (value[:, n // group] @ head_projection).norm(dim=-1)
            for n, head_projection in enumerate(projection)
        ]
    return torch.stack(norms, dim=1)
