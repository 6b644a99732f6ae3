"""Attention in a dozen lines of float64: the definition, and the oracle of every test."""

import torch
from torch import Tensor

from regard.attention.call import Attention, Lse, Output
from regard.internals import warm_up_mkl


def run(inputs: Attention, lse: bool = True) -> tuple[Output, Lse]:
    """Return the output of attention and the log-sum-exp of each row."""
    warm_up_mkl()
    query, key, value = (tensor.double() for tensor in inputs.tensors)
    key, value = (x.repeat_interleave(inputs.group, dim=1) for x in (key, value))

    scores = inputs.scale * query @ key.mT
    batch, head, query_position, key_position = positions_of(inputs)
    if inputs.bias is not None:
        scores = inputs.bias.adjust(scores, batch, head, query_position, key_position)
    allowed = inputs.pattern.test(batch, query_position, key_position) & (scores > -torch.inf)

    # A fully masked row keeps finite scores, so that its gradient is zero, not NaN.
    has_keys = allowed.any(dim=-1, keepdim=True)
    scores = scores.masked_fill(~has_keys, 0.0).masked_fill(~allowed & has_keys, -torch.inf)
    sums = scores.logsumexp(dim=-1).masked_fill(~has_keys[..., 0], -torch.inf)
    weights = scores.softmax(dim=-1) * has_keys

    output = torch.dropout(weights, inputs.dropout, train=True) @ value
    return output.to(inputs.query.dtype), sums.to(inputs.lse_dtype)


def positions_of(inputs: Attention) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return batch, head, query position and key position of every score, broadcastable."""
    device = inputs.query.device
    return (
        torch.arange(inputs.batch, device=device)[:, None, None, None],
        torch.arange(inputs.num_heads, device=device)[:, None, None],
        inputs.query_positions.to(device)[:, None],
        torch.arange(inputs.num_keys, device=device),
    )


def obstacle(inputs: Attention, lse: bool) -> str | None:
    """Return None: this backend supports every call."""
    return None
