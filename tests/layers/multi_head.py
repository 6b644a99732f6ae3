"""Multi-head attention from its definition: one sequence, one head, one query at a time."""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.layers import MultiHeadAttention
from regard.patterns import Pattern
from regard.positions import Rotary
from tests.layers.rounding import assert_close, shuffle, with_gradients

BATCH, QUERIES, KEYS, MODEL_DIM, CONTEXT_DIM = 2, 7, 11, 15, 13
TERMS = 2 * MODEL_DIM + 7 + 2 * KEYS + 6 * 7

Allowed = Callable[[int, int, int], bool]
"""Whether, in sequence b, the query at position i may look at the key at position j."""

Adjust = Callable[[Tensor, int, int, int], Tensor]
"""What becomes of the score of head h between the positions i and j."""


def written_out(
    layer: MultiHeadAttention,
    x: Tensor,
    context: Tensor | None = None,
    *,
    scale: float | None = None,
    rotary: Rotary | None = None,
    allowed: Allowed = lambda b, i, j: True,
    adjust: Adjust = lambda score, h, i, j: score,
) -> Tensor:
    """Compute attention from its definition: one sequence, one head, one query at a time.

    Of the layer, only the weights are used, and how many heads there are.
    """
    context = x if context is None else context
    heads, key_heads = layer.num_heads, layer.num_key_heads
    key_dim = layer.query.out_features // heads
    value_dim = layer.value.out_features // key_heads
    scale = 1 / math.sqrt(key_dim) if scale is None else scale
    first = context.shape[1] - x.shape[1]

    def part(linear: nn.Linear, vectors: Tensor, head: int, dim: int) -> Tensor:
        rows = slice(head * dim, (head + 1) * dim)
        result = vectors @ linear.weight[rows].T
        return result if linear.bias is None else result + linear.bias[rows]

    sequences = []
    for b in range(len(x)):
        seen = []
        for h in range(heads):
            group = h // (heads // key_heads)
            q = part(layer.query, x[b], h, key_dim)
            k = part(layer.key, context[b], group, key_dim)
            v = part(layer.value, context[b], group, value_dim)
            if rotary is not None:
                q, k = rotary(q[None, None])[0, 0], rotary(k[None, None])[0, 0]
            rows = []
            for i in range(len(q)):
                looked_at = [j for j in range(len(k)) if allowed(b, first + i, j)]
                if not looked_at:
                    rows.append(v.new_zeros(value_dim))
                    continue
                scores = torch.stack(
                    [adjust(scale * (q[i] * k[j]).sum(), h, first + i, j) for j in looked_at]
                )
                exponentials = torch.exp(scores)
                total = exponentials.sum()
                pairs = zip(exponentials, looked_at, strict=True)
                rows.append(sum(e / total * v[j] for e, j in pairs))
            seen.append(torch.stack(rows))
        sequences.append(torch.cat(seen, dim=1) @ layer.output.weight.T)
    result = torch.stack(sequences)
    return result if layer.output.bias is None else result + layer.output.bias


def layer_of(
    num_heads: int = 3, *, dtype: torch.dtype = torch.float64, **options: Any
) -> MultiHeadAttention:
    layer = MultiHeadAttention(MODEL_DIM, num_heads, **options)
    shuffle(layer)
    return layer.to(dtype)


def check(
    layer: MultiHeadAttention,
    x: Tensor,
    context: Tensor | None = None,
    *,
    pattern: Pattern | None = None,
    **meaning: Any,
) -> None:
    """Assert that a layer in float64, and in float32, gives what the definition does."""
    given = {"x": x.requires_grad_()}
    if context is not None:
        given["context"] = context.requires_grad_()
    inputs = given | dict(layer.named_parameters())
    expected = with_gradients(written_out(layer, *given.values(), **meaning), inputs)
    found = with_gradients(layer(*given.values(), pattern=pattern), inputs)
    assert_close(found, expected, terms=TERMS)

    layer = copy.deepcopy(layer).to(torch.float32)
    given = {name: tensor.detach().float().requires_grad_() for name, tensor in given.items()}
    inputs = given | dict(layer.named_parameters())
    found = with_gradients(layer(*given.values(), pattern=pattern), inputs)
    assert found["output"].dtype == torch.float32
    assert_close(found, expected, terms=TERMS)
