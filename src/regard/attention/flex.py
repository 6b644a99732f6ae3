"""PyTorch's FlexAttention, compiled for the pattern and the bias."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from regard.attention.call import Attention, Lse, Output
from regard.internals import recompile_limit
from regard.patterns import Cover
from regard.patterns.layout_cache import cached
from regard.patterns.neighbours import Neighbours
from regard.patterns.pattern import Span

BLOCK = 128
"""Block size of FlexAttention's kernels."""


def obstacle(inputs: Attention, lse: bool) -> str | None:
    """Return why this backend doesn't support a call, or None if it does."""
    learns = any(tensor.requires_grad for tensor in inputs.tensors)
    trains = torch.is_grad_enabled() and learns
    on_cpu = inputs.query.device.type == "cpu"

    if inputs.dropout:
        return "FlexAttention has no dropout"
    if on_cpu and (trains or inputs.trains_bias):
        return (
            "FlexAttention has no backward on the CPU; "
            'call it under torch.no_grad() or choose backend="blocks"'
        )
    if on_cpu and lse:
        return (
            "FlexAttention returns no log-sum-exp on the CPU; "
            'choose backend="blocks" or backend="fused"'
        )
    if inputs.query.dtype == torch.float64 and not on_cpu:
        return "FlexAttention's GPU kernels don't support float64"
    if any(isinstance(leaf, Neighbours) for leaf in inputs.pattern.leaves()):
        return 'FlexAttention can\'t search an edge list; choose backend="blocks"'
    return None


def run(inputs: Attention, lse: bool) -> tuple[Output, Lse | None]:
    """Return the output of attention, and the log-sum-exp of each row if `lse`."""
    # Every pattern recompiles; PyTorch's default limit is 8.
    with recompile_limit(1024):
        results = _compiled()(
            *inputs.tensors,
            score_mod=_score_mod(inputs),
            block_mask=block_mask(inputs),
            scale=inputs.scale,
            enable_gqa=inputs.group > 1,
            return_lse=lse,
        )
    return results if lse else (results, None)


@cache
def _compiled() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False, fullgraph=True)


def block_mask(inputs: Attention) -> Any:
    """Return the pattern as FlexAttention's BlockMask, or None if it allows every pair.

    `cover` classifies the blocks; only the `SOME` ones are evaluated pair by pair.
    """
    if inputs.is_dense:
        return None
    first = inputs.first_position
    if first is None:
        return _block_mask(inputs)
    name = ("block mask", first, inputs.num_queries, inputs.num_keys, inputs.query.device)
    return cached(inputs.pattern, name, lambda: _block_mask(inputs))


def _block_mask(inputs: Attention) -> Any:
    from torch.nn.attention.flex_attention import BlockMask

    pattern, query_positions = inputs.simple_pattern, inputs.query_positions
    num_keys, device = inputs.num_keys, inputs.query.device
    batch = torch.arange(pattern.batch_size or 1, device="cpu")[:, None, None]
    query = Span(*(end[None, :, None] for end in _block_ends(query_positions)))
    key = Span(*(end[None, None, :] for end in _block_ends(torch.arange(num_keys, device="cpu"))))
    codes = pattern.cover_spans(batch, query, key).to(device)
    codes = codes.expand(len(codes), query.first.shape[1], key.first.shape[2])
    here = query_positions.to(device)

    def mask_mod(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return pattern.test(batch, here[query], key)

    return BlockMask.from_kv_blocks(
        *_listed(codes == Cover.SOME),
        *_listed(codes == Cover.ALL),
        BLOCK_SIZE=BLOCK,
        mask_mod=mask_mod,
        seq_lengths=(len(query_positions), num_keys),
    )


def _block_ends(positions: Tensor) -> tuple[Tensor, Tensor]:
    blocks = positions.split(BLOCK)
    return torch.stack([b.min() for b in blocks]), torch.stack([b.max() for b in blocks])


def _listed(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Return the number of chosen columns per row, and the columns, chosen ones first."""
    order = torch.argsort(chosen.int(), dim=-1, descending=True, stable=True)
    return chosen.sum(dim=-1, dtype=torch.int32)[:, None], order.int()[:, None]


def _score_mod(inputs: Attention) -> Callable[..., Tensor] | None:
    bias = inputs.bias
    if bias is None:
        return None
    # Inductor fails if score_mod and mask_mod read the same tensor.
    here = inputs.query_positions.to(inputs.query.device).clone()

    def score_mod(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return bias.adjust(score, batch, head, here[query], key)

    return score_mod
