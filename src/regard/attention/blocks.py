"""Only the blocks that the pattern allows, each part of a fused call, joined by log-sum-exp."""

from jaxtyping import Float
from torch import Tensor

from regard.attention import kernels
from regard.attention.call import Call
from regard.attention.joined import Work, attend_joined
from regard.attention.pieces import writes_scores
from regard.patterns import Layout, layout
from regard.patterns.layout import consecutive_layout

FORWARD_BLOCK = 64
BACKWARD_BLOCK = 192
"""Queries to a block on the CPU. A small block wastes fewer pairs; but the backward kernel takes
its rows 64 at a time only from 192 rows on, and 32 at a time before that."""

GPU_BLOCK = 128


def obstacle(call: Call, lse: bool) -> str | None:
    """Say why this backend can't serve a call, or None if it can."""
    if call.dropout:
        return "its kernels have no dropout"
    if not kernels.available(call.query) and not writes_scores(call):
        return f"PyTorch has no kernel that gives the log-sum-exp on {call.query.device.type}"
    return None


def run(
    call: Call, lse: bool
) -> tuple[Float[Tensor, "batch heads queries value_dim"], Float[Tensor, "batch heads queries"]]:
    """Return the output of attention and the log-sum-exp of each row."""
    return attend_joined(call, Work(forward_layout(call), lambda: backward_layout(call)))


def forward_layout(call: Call) -> Layout:
    """Return the strips of the forward pass."""
    on_gpu = call.query.device.type != "cpu"
    return _layout(call, GPU_BLOCK if on_gpu else FORWARD_BLOCK)


def backward_layout(call: Call) -> Layout:
    """Return the strips of the backward pass."""
    on_gpu = call.query.device.type != "cpu"
    return _layout(call, GPU_BLOCK if on_gpu else BACKWARD_BLOCK)


def _layout(call: Call, block: int) -> Layout:
    pattern, first = call.pattern, call.first_position
    if first is None:
        return layout(pattern, call.query_positions, call.num_keys, block=block)
    return consecutive_layout(pattern, first, call.num_queries, call.num_keys, block)
