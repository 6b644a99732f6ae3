"""Block-sparse attention: fused kernels on the allowed blocks, joined by log-sum-exp."""

from jaxtyping import Float
from torch import Tensor

from regard.attention import kernels
from regard.attention.inputs import AttentionInputs
from regard.attention.joined import Layouts, attend_joined
from regard.attention.kernel_calls import writes_scores
from regard.patterns import Layout, layout
from regard.patterns.layout import consecutive_layout

FORWARD_BLOCK = 64
BACKWARD_BLOCK = 192
"""Queries per block on the CPU. A small block wastes fewer pairs; but the backward kernel processes
64 rows at a time only from 192 rows on, and 32 below."""

GPU_BLOCK = 128


def obstacle(inputs: AttentionInputs, lse: bool) -> str | None:
    """Return why this backend doesn't support a call, or None if it does."""
    if inputs.dropout:
        return "its kernels have no dropout"
    if not kernels.available(inputs.query) and not writes_scores(inputs):
        return f"PyTorch has no kernel that returns the log-sum-exp on {inputs.query.device.type}"
    return None


def run(
    inputs: AttentionInputs, lse: bool
) -> tuple[Float[Tensor, "batch heads queries value_dim"], Float[Tensor, "batch heads queries"]]:
    """Return the output of attention and the log-sum-exp of each row."""
    return attend_joined(inputs, Layouts(forward_layout(inputs), lambda: backward_layout(inputs)))


def forward_layout(inputs: AttentionInputs) -> Layout:
    """Return the strips of the forward pass."""
    return _layout(inputs, FORWARD_BLOCK)


def backward_layout(inputs: AttentionInputs) -> Layout:
    """Return the strips of the backward pass."""
    return _layout(inputs, BACKWARD_BLOCK)


def _layout(inputs: AttentionInputs, cpu_block: int) -> Layout:
    block = cpu_block if inputs.query.device.type == "cpu" else GPU_BLOCK
    pattern, first = inputs.pattern, inputs.first_position
    if first is None:
        if block not in inputs.layouts:
            positions = inputs.query_positions
            inputs.layouts[block] = layout(pattern, positions, inputs.num_keys, block=block)
        return inputs.layouts[block]
    return consecutive_layout(pattern, first, inputs.num_queries, inputs.num_keys, block)
