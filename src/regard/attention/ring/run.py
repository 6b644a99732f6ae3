"""Attention over a sharded sequence: the forward and the backward pass."""

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, distributed
from torch.nn.functional import pad

from regard.attention import block_sparse
from regard.attention.block_sparse import add_gradients, empty, join, readable, whole_rows
from regard.attention.call import (
    Attention,
    Lse,
    Output,
    checked_bias,
    checked_pattern,
)
from regard.attention.choose import Plan
from regard.attention.ring.schedule import RingSchedule, RingStep, rank_work, ring_schedule
from regard.attention.ring.shards import PositionRuns, ShardPositions, runs_of
from regard.attention.ring.transfers import KeysAndValues, pass_around
from regard.distributed.content import described
from regard.distributed.ranks import Ranks, Transfer, check_same
from regard.internals import warm_up_mkl
from regard.patterns import Pattern
from regard.positions import Bias


@dataclass(frozen=True, eq=False)
class RingInputs:
    """The checked arguments of a call of several ranks.

    Attributes:
        inputs: those of this rank, with its own queries, keys and values.
        shards: the positions of all ranks.
        ranks: the ranks.
    """

    inputs: Attention
    shards: ShardPositions
    ranks: Ranks

    def schedule(self, *, backward: bool) -> RingSchedule:
        """Return the steps of this rank."""
        block = block_sparse.block_size(self.inputs.query.device, backward=backward)
        return ring_schedule(self.inputs.pattern, self.shards, self.ranks.rank, block)


def ring_inputs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pattern: Pattern | None,
    bias: Bias | Tensor | None,
    scale: float | None,
    dropout: float,
    positions: int | Tensor | None,
    backend: str,
    group: "distributed.ProcessGroup",
) -> RingInputs:
    """Check the arguments of `attend` on all ranks, which tell one another their positions.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: arguments do not fit together, or not to those of other ranks; then it is raised
            on all of them.
    """
    ranks = Ranks(group)

    def check() -> tuple[Attention, tuple[dict[str, Any], PositionRuns | None, int]]:
        local = Attention.checked(query, key, value, None, None, scale, dropout, positions)
        _check_options(local, bias, backend)
        assert not isinstance(bias, Tensor)
        # By default, the positions follow those of the rank before.
        runs = None if positions is None else runs_of(local.query_positions)
        return local, (_common_arguments(local, pattern, bias), runs, local.num_queries)

    # 1. Check the arguments of this rank, and compare them with those of all ranks.
    local, messages = ranks.share(check)
    common, all_runs, lengths = zip(*messages, strict=True)
    check_same(common)

    # 2. Check pattern and bias for the positions of all ranks.
    shards = _shard_positions(all_runs, lengths)
    whole = range(shards.length)
    inputs = replace(
        local,
        pattern=checked_pattern(pattern, local.batch, whole, shards.length),
        bias=checked_bias(bias, query, whole, shards.length),
        positions=shards.positions(ranks.rank),
    )
    problem = block_sparse.obstacle(inputs, lse=True)
    if problem:
        raise ValueError(f"attend with group= can't serve this call: {problem}")
    return RingInputs(inputs, shards, ranks)


def _check_options(inputs: Attention, bias: Bias | Tensor | None, backend: str) -> None:
    """Check what a call of several ranks does not support."""
    if inputs.num_queries != inputs.num_keys:
        raise ValueError(
            "with group=, a rank must have the queries and keys of the same positions, "
            f"got {inputs.num_queries} and {inputs.num_keys}"
        )
    if backend not in ("auto", "blocks"):
        raise ValueError(f'backend must be "auto" or "blocks" with group=, got {backend!r}')
    if isinstance(bias, Tensor):
        raise ValueError(
            "with group=, bias must be a Bias: pass regard.positions.from_tensor(values), which is "
            "indexed by position"
        )


def _common_arguments(
    inputs: Attention, pattern: Pattern | None, bias: Bias | None
) -> dict[str, Any]:
    """Return what must be the same on all ranks."""
    return {
        "batch": inputs.batch,
        "heads": inputs.num_heads,
        "key heads": inputs.key.shape[1],
        "head sizes": (inputs.key.shape[-1], inputs.value_dim),
        "dtype": str(inputs.query.dtype),
        "scale": inputs.scale,
        "pattern": described(pattern),
        "bias": described(bias),
    }


def _shard_positions(
    all_runs: tuple[PositionRuns | None, ...], lengths: tuple[int, ...]
) -> ShardPositions:
    """Return the positions of all ranks.

    Raises:
        ValueError: they are not those of one sequence.
    """
    known = tuple(runs for runs in all_runs if runs is not None)
    if 0 < len(known) < len(all_runs):
        raise ValueError("either all ranks must pass positions, or none")
    if not known:
        ends = accumulate(lengths)
        known = tuple(((end - n, end),) for end, n in zip(ends, lengths, strict=True))
    shards = ShardPositions(known)
    if shards.problem:
        raise ValueError(
            "the positions of all ranks must be 0, 1, 2, … of one sequence, each on one rank: "
            f"{shards.problem}"
        )
    return shards


def planned(call: RingInputs) -> Plan:
    """Return the cost of a call on all ranks; `flops` are those of this one."""
    inputs, length = call.inputs, call.shards.length
    block = block_sparse.block_size(inputs.query.device, backward=False)
    of_ranks = rank_work(inputs.pattern, call.shards, block)
    num_features = inputs.key.shape[-1] + inputs.value_dim
    sequences = inputs.pattern.batch_size or 1
    num_pairs = sum(rank.num_pairs for rank in of_ranks)
    flops_per_pair = 2.0 * num_features * inputs.num_heads * inputs.batch / sequences
    bytes_per_number = inputs.query.dtype.itemsize
    return Plan(
        "blocks",
        f"the sequence is shared by {len(of_ranks)} ranks",
        num_pairs / max(1, length * length * sequences),
        flops_per_pair * of_ranks[call.ranks.rank].num_pairs,
        of_ranks,
        inputs.batch * inputs.key.shape[1] * num_features * bytes_per_number,
    )


def run(call: RingInputs) -> tuple[Output, Lse]:
    """Return the output of this rank's queries over the keys of all ranks, and the lse."""
    warm_up_mkl()
    inputs = call.inputs
    tensors = () if inputs.bias is None else inputs.bias.tensors
    output, lse = _RingAttention.apply(call, *inputs.tensors, *tensors)
    return output, lse


class _RingAttention(torch.autograd.Function):
    """Each step joined to those before it; backward, gradients go back to their rank."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        call: RingInputs, query: Tensor, key: Tensor, value: Tensor, *bias: Tensor
    ) -> tuple[Tensor, Tensor]:
        inputs, width = call.inputs, max(key.shape[-1], value.shape[-1])
        wide_query = _padded(query, width)
        output = empty(wide_query, inputs.lse_dtype).zero_()
        lse = empty(wide_query[..., :1], inputs.lse_dtype).fill_(-torch.inf)
        schedule = call.schedule(backward=False)
        for _, step, rows in pass_around(call.ranks, schedule, key, value):
            if rows is not None:
                tensors = (wide_query, _padded(rows[0], width), _padded(rows[1], width))
                of_step = replace(inputs, key=rows[0], value=rows[1])
                join(of_step, step.layout, tensors, output, lse)
        return output[..., : value.shape[-1]].to(query.dtype), lse[..., 0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.call = inputs[0]
        ctx.save_for_backward(*inputs[1:4], *output, *inputs[4:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad: Tensor | None, grad_lse: Tensor | None
    ) -> tuple[Any, ...]:
        query, key, value, output, lse, *bias = ctx.saved_tensors
        learns = ctx.needs_input_grad[4:]
        learned = [tensor for tensor, needed in zip(bias, learns, strict=True) if needed]
        results, grads = (output, lse), (grad, grad_lse)
        sums = _gradients(ctx.call, (query, key, value), results, grads, learned)
        of_bias = iter(sums[3:])
        return None, *sums[:3], *(next(of_bias) if needed else None for needed in learns)


def _gradients(
    call: RingInputs,
    tensors: tuple[Tensor, Tensor, Tensor],
    results: tuple[Tensor, Tensor],
    grads: tuple[Tensor | None, Tensor | None],
    learned: list[Tensor],
) -> list[Tensor]:
    """Return the gradients of query, key, value and the learned tensors of the bias.

    Args:
        call: the call.
        tensors: query, key and value.
        results: output and log-sum-exp.
        grads: their gradients.
        learned: the tensors of the bias that need a gradient.
    """
    query, key, value = tensors
    key_dim, value_dim = key.shape[-1], value.shape[-1]
    dtype = call.inputs.lse_dtype

    # 1. The rows of this rank over all keys, one column wider if the lse has a gradient.
    width = max(key_dim, value_dim)
    grad = None if grads[0] is None else _padded(grads[0], width)
    whole = whole_rows(_padded(results[0], width), results[1], grad, grads[1])
    width = whole.grad.shape[-1]
    wide_query = _padded(query, width)

    # 2. Sums of gradients.
    of_query = empty(wide_query, dtype).zero_()
    of_key, of_value = (empty(_padded(x, width), dtype).zero_() for x in (key, value))
    of_bias = [torch.zeros_like(tensor, dtype=dtype) for tensor in learned]

    def add(step: RingStep, rows: KeysAndValues, *of_rows: Tensor) -> None:
        """Add to the gradients of query and bias, and to those of the keys and values of a step."""
        inputs = replace(call.inputs, key=rows[0], value=rows[1])
        wide = (wide_query, _padded(rows[0], width), _padded(rows[1], width))
        add_gradients(inputs, step.layout, wide, whole, [of_query, *of_rows], (learned, of_bias))

    def of_remote(step: RingStep, rows: KeysAndValues) -> Tensor:
        """Return the gradients of the keys and values of another rank, beside each other."""
        sums = [empty(_padded(x, width), dtype).zero_() for x in rows]
        add(step, rows, *sums)
        both = torch.cat([sums[0][..., :key_dim], sums[1][..., :value_dim]], dim=-1)
        if len(step.owned) == len(step.positions):
            return both
        return both.index_select(2, step.owned.to(key.device))

    def add_returned(transfer: Transfer, rows: Int[Tensor, "rows"]) -> None:
        """Add the gradients of some own rows when they have come."""
        received = transfer.wait()
        if received is not None:
            index = rows.to(key.device)
            of_key[..., :key_dim].index_add_(2, index, received[..., :key_dim])
            of_value[..., :value_dim].index_add_(2, index, received[..., key_dim:])

    # 3. Once more around the ring.
    schedule, returning = call.schedule(backward=True), None
    for number, step, rows in pass_around(call.ranks, schedule, key, value):
        if rows is not None and rows[0] is key:
            # All own rows in order: nothing to select or to send.
            add(step, rows, of_key, of_value)
            continue
        no_rows = query.new_empty(*key.shape[:2], 0, key_dim + value_dim, dtype=dtype)
        of_rows = no_rows if rows is None else of_remote(step, rows)
        if returning is not None:
            add_returned(*returning)
        # The gradients of a rank's keys go back to it, and others bring those of ours.
        sent = schedule.sent[number]
        returning = call.ranks.exchange(-number, of_rows, len(sent)), sent
    if returning is not None:
        add_returned(*returning)

    sums = (of_query[..., :key_dim], of_key[..., :key_dim], of_value[..., :value_dim])
    return [x.to(query.dtype) for x in sums] + [
        total.to(tensor.dtype) for total, tensor in zip(of_bias, learned, strict=True)
    ]


def _padded(x: Tensor, width: int) -> Tensor:
    """Return x with zeros up to a head size, readable by the kernels."""
    return readable(pad(x, (0, width - x.shape[-1])) if x.shape[-1] < width else x)
