"""PyTorch's `scaled_dot_product_attention`, for patterns that fill the matrix."""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from regard.attention import kernels
from regard.attention.call import Call
from regard.attention.joined import Work, attend_joined, same_head_size
from regard.attention.reference import places
from regard.attention.step import Step, prepared
from regard.patterns import Layout
from regard.patterns.memory import remembered
from regard.patterns.strips import WRITTEN_PAIRS, Rows, Strip


def obstacle(call: Call, lse: bool) -> str | None:
    """Say why this backend can't serve a call, or None if it can."""
    if call.bias is not None and not call.bias.additive:
        return f"its kernel takes only biases that are added to the scores, not {call.bias!r}"
    if lse and call.dropout:
        return "its kernel gives no log-sum-exp under dropout"
    if lse and not kernels.available(call.query):
        return f"its kernel gives no log-sum-exp on {call.query.device.type}"
    return None


def run(
    call: Call, lse: bool
) -> tuple[
    Float[Tensor, "batch heads queries value_dim"], Float[Tensor, "batch heads queries"] | None
]:
    """Return the output of attention, and the log-sum-exp of each row if it is asked for."""
    causal = kernel_masks(call)
    if lse:
        if causal:
            # Grouped heads are computed as more rows of one head, which the kernel's own causal
            # mask knows nothing of: here the keys are repeated.
            key, value = (x.repeat_interleave(call.group, dim=1) for x in (call.key, call.value))
            call = replace(call, key=key, value=value)
        return attend_joined(call, _whole(call))
    step = _step(call)
    # Unequal head sizes would send PyTorch to a kernel that writes the whole matrix down.
    query, key, value = same_head_size(call)
    if step is not None:
        return step(query, key, value)[..., : call.value.shape[-1]], None
    output = scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=None if causal else _mask(call),
        dropout_p=call.dropout,
        is_causal=causal,
        scale=call.scale,
        enable_gqa=call.group > 1,
    )
    return output[..., : call.value.shape[-1]], None


def kernel_masks(call: Call) -> bool:
    """Whether the kernel's own causal mask, which starts at the top left, is what is meant.

    On the CPU it masks before it scales, which goes wrong unless the scale is positive.
    """
    return call.is_square_causal and call.bias is None and call.scale > 0


def density(call: Call, lse: bool) -> float:
    """Return the share of the pairs that is computed."""
    if kernel_masks(call):
        return (call.num_keys + 1) / (2 * call.num_keys)
    step = None if lse else _step(call)
    return 1.0 if step is None else step.num_keys / call.num_keys


def _step(call: Call) -> Step | None:
    return None if kernel_masks(call) or call.dropout else prepared(call)


def _mask(call: Call) -> Tensor | None:
    """Return the mask as a dense tensor: boolean, or what is added to the scores."""
    if call.is_dense and call.bias is None:
        return None
    allowed = None if call.is_dense else _allowed(call)
    if call.bias is None:
        assert allowed is not None
        mask = allowed
    else:
        batch, head, query, key = places(call)
        zero = torch.zeros((), dtype=call.query.dtype, device=call.query.device)
        mask = call.bias.adjust(zero, batch, head, query, key)
        mask = mask if allowed is None else mask.masked_fill(~allowed, -torch.inf)
    # With fewer than four axes, PyTorch would take the kernel that writes the matrix down.
    mask = mask[(None,) * (4 - mask.dim())]
    return mask.expand(*mask.shape[:2], call.num_queries, call.num_keys)


def _allowed(call: Call) -> Bool[Tensor, "batch_or_1 1 queries keys"]:
    """Return who may look at whom, from memory where that is small."""

    def make() -> Tensor:
        positions = call.query_positions.to(call.query.device)
        return call.simple_pattern.dense(positions, call.num_keys)[:, None]

    first, pairs = call.first_position, call.num_queries * call.num_keys
    large = pairs * (call.pattern.batch_size or 1) > WRITTEN_PAIRS
    if first is None or large or torch.compiler.is_compiling():
        return make()
    name = ("mask", first, call.num_queries, call.num_keys, call.query.device)
    return remembered(call.pattern, name, make)


def _whole(call: Call) -> Work:
    """Return the whole matrix as a single rectangle."""
    causal = kernel_masks(call)
    start = torch.zeros(1, dtype=torch.long, device="cpu")
    queries, keys = (Rows(n, start, pitch=0) for n in (call.num_queries, call.num_keys))
    pattern = None if causal or call.is_dense else call.simple_pattern
    sequences = [None] if pattern is None or pattern.batch_size is None else range(call.batch)
    strips = [Strip(batch, queries, keys, None, pattern, fresh=True) for batch in sequences]
    layout = Layout(tuple(strips), call.query_positions, starts_all=True)
    return Work(layout, lambda: layout, causal)
