"""PyTorch's `scaled_dot_product_attention`, for dense patterns."""

from dataclasses import replace

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from regard.attention import kernels
from regard.attention.block_sparse import Layouts, attend_joined, same_head_size
from regard.attention.call import Attention, Lse, Output
from regard.attention.decode import DecodeStep, decode_step
from regard.attention.reference import positions_of
from regard.patterns import Layout
from regard.patterns.layout import WRITTEN_PAIRS, Strip, StripRows
from regard.patterns.layout_cache import cached


def obstacle(inputs: Attention, lse: bool) -> str | None:
    """Return why this backend doesn't support a call, or None if it does."""
    if inputs.bias is not None and not inputs.bias.additive:
        return f"its kernel supports only additive biases, not {inputs.bias!r}"
    if lse and inputs.dropout:
        return "its kernel returns no log-sum-exp with dropout"
    if lse and not kernels.available(inputs.tensors[0]):
        return f"its kernel returns no log-sum-exp on {inputs.query.device.type}"
    return None


def run(inputs: Attention, lse: bool) -> tuple[Output, Lse | None]:
    """Return the output of attention, and the log-sum-exp of each row if `lse`."""
    causal = kernel_masks(inputs)
    if lse:
        if causal:
            # Grouped heads are folded into the rows of one head, which breaks the kernel's causal
            # mask: repeat the keys instead.
            key, value = (x.repeat_interleave(inputs.group, dim=1) for x in inputs.tensors[1:])
            inputs = replace(inputs, key=key, value=value)
        return attend_joined(inputs, _whole(inputs))

    step = None if causal else _step(inputs)
    # With unequal head sizes PyTorch falls back to a kernel that materialises the matrix.
    query, key, value = same_head_size(inputs)
    if step is not None:
        return step(query, key, value)[..., : inputs.value_dim], None
    output = scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=None if causal else _mask(inputs),
        dropout_p=inputs.dropout,
        is_causal=causal,
        scale=inputs.scale,
        enable_gqa=inputs.group > 1,
    )
    return output[..., : inputs.value_dim], None


def kernel_masks(inputs: Attention) -> bool:
    """Whether the kernel's causal mask, aligned to the top left, gives this pattern.

    The CPU kernel masks before it scales, which is wrong unless the scale is positive.
    """
    return inputs.is_square_causal and inputs.bias is None and inputs.scale > 0


def density(inputs: Attention, lse: bool) -> float:
    """Return the share of pairs that is computed."""
    if kernel_masks(inputs):
        return (inputs.num_keys + 1) / (2 * inputs.num_keys)
    step = None if lse else _step(inputs)
    return 1.0 if step is None else step.num_keys / inputs.num_keys


def _step(inputs: Attention) -> DecodeStep | None:
    return None if inputs.dropout else decode_step(inputs)


def _mask(inputs: Attention) -> Tensor | None:
    """Return the dense mask: boolean, or additive if there is a bias."""
    if inputs.is_dense and inputs.bias is None:
        return None
    allowed = None if inputs.is_dense else _allowed(inputs)
    if inputs.bias is None:
        assert allowed is not None
        mask = allowed
    else:
        positions = positions_of(inputs)
        zero = torch.zeros((), dtype=inputs.query.dtype, device=inputs.query.device)
        mask = inputs.bias.adjust(zero, *positions)
        mask = mask if allowed is None else mask.masked_fill(~allowed, -torch.inf)
    # With fewer than four axes PyTorch falls back to a kernel that materialises the matrix.
    mask = mask[(None,) * (4 - mask.dim())]
    return mask.expand(*mask.shape[:2], inputs.num_queries, inputs.num_keys)


def _allowed(inputs: Attention) -> Bool[Tensor, "batch_or_1 1 queries keys"]:
    """Return the dense mask of the pattern, cached if it is small."""

    def make() -> Tensor:
        positions = inputs.query_positions.to(inputs.query.device)
        return inputs.simple_pattern.dense(positions, inputs.num_keys)[:, None]

    first, pairs = inputs.first_position, inputs.num_queries * inputs.num_keys
    large = pairs * (inputs.pattern.batch_size or 1) > WRITTEN_PAIRS
    if first is None or large or torch.compiler.is_compiling():
        return make()
    name = ("mask", first, inputs.num_queries, inputs.num_keys, inputs.query.device)
    return cached(inputs.pattern, name, make)


def _whole(inputs: Attention) -> Layouts:
    """Return the whole matrix as a single rectangle."""
    causal = kernel_masks(inputs)
    start = torch.zeros(1, dtype=torch.long, device="cpu")
    queries, keys = (StripRows(n, start, pitch=0) for n in (inputs.num_queries, inputs.num_keys))
    pattern = None if causal or inputs.is_dense else inputs.simple_pattern
    sequences = [None] if pattern is None or pattern.batch_size is None else range(inputs.batch)
    strips = [Strip(batch, queries, keys, None, pattern, fresh=True) for batch in sequences]
    layout = Layout(tuple(strips), inputs.query_positions, starts_all=True)
    return Layouts(layout, lambda: layout, causal)
