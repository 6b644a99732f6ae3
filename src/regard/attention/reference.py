"""The meaning of attention, in a dozen readable lines of float64: the oracle of every test."""

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.call import Call
from regard.attention.exact import settle


def run(
    call: Call, lse: bool = True
) -> tuple[Float[Tensor, "batch heads queries value_dim"], Float[Tensor, "batch heads queries"]]:
    """Return the output of attention and the log-sum-exp of each row, from every score at once."""
    settle()
    query, key, value = call.query.double(), call.key.double(), call.value.double()
    key, value = (x.repeat_interleave(call.group, dim=1) for x in (key, value))

    scores = call.scale * query @ key.mT
    batch, head, query_position, key_position = places(call)
    if call.bias is not None:
        scores = call.bias.adjust(scores, batch, head, query_position, key_position)
    allowed = call.pattern.test(batch, query_position, key_position) & (scores > -torch.inf)

    # A row that may look at nothing keeps finite scores, so that its gradient is zero, not NaN.
    some = allowed.any(dim=-1, keepdim=True)
    scores = scores.masked_fill(~some, 0.0).masked_fill(~allowed & some, -torch.inf)
    sums = scores.logsumexp(dim=-1).masked_fill(~some[..., 0], -torch.inf)
    weights = scores.softmax(dim=-1) * some
    output = torch.dropout(weights, call.dropout, train=True) @ value
    return output.to(call.query.dtype), sums.to(call.lse_dtype)


def places(call: Call) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return batch, head, query position and key position of every score, to be broadcast."""
    device = call.query.device
    return (
        torch.arange(call.batch, device=device)[:, None, None, None],
        torch.arange(call.num_heads, device=device)[:, None, None],
        call.query_positions.to(device)[:, None],
        torch.arange(call.num_keys, device=device),
    )


def obstacle(call: Call, lse: bool) -> str | None:
    """Say why this backend can't serve a call: it always can."""
    return None
