"""Attention over a sharded sequence: the forward and the backward pass."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, distributed
from torch.nn.functional import pad

from regard.attention import block_sparse
from regard.attention.block_sparse import add_gradients, empty, join, readable, whole_rows
from regard.attention.inputs import (
    AttentionInputs,
    checked_bias,
    checked_inputs,
    checked_pattern,
)
from regard.attention.ring.content import described
from regard.attention.ring.listed_keys import BiasOfListed
from regard.attention.ring.route import Leg, Route, route
from regard.attention.ring.shards import Shards, runs_of
from regard.attention.ring.transfers import (
    KeysAndValues,
    Ring,
    Transfer,
    around,
    from_all_ranks,
)
from regard.internals import warm_up_mkl
from regard.patterns import Pattern
from regard.positions import Bias


@dataclass(frozen=True, eq=False)
class RingInputs:
    """The checked arguments of a call of several ranks.

    Attributes:
        inputs: those of this rank, with its own queries, keys and values.
        shards: the positions of all ranks.
        ring: the ranks.
    """

    inputs: AttentionInputs
    shards: Shards
    ring: Ring

    def route(self, *, backward: bool) -> Route:
        """Return the way of this rank."""
        return route(self.inputs.pattern, self.shards, self.ring.rank, self.block(backward))

    def block(self, backward: bool) -> int:
        """Return the number of queries per block."""
        if self.inputs.query.device.type != "cpu":
            return block_sparse.GPU_BLOCK
        return block_sparse.BACKWARD_BLOCK if backward else block_sparse.FORWARD_BLOCK


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
    if not isinstance(group, distributed.ProcessGroup):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"group must be a process group, got {type(group).__name__}")
    try:
        local = _local_inputs(query, key, value, bias, scale, dropout, positions, backend)
        failed = None
        assert not isinstance(bias, Tensor)
        mine: Any = (_facts(local, pattern, bias), _runs(local, positions), local.num_queries)
    except (TypeError, ValueError) as error:
        # The others would wait for this rank.
        local, failed, mine = None, error, str(error)
    theirs = from_all_ranks(mine, group)
    if failed is not None:
        raise failed
    assert local is not None
    for rank, one in enumerate(theirs):
        if isinstance(one, str):
            raise ValueError(f"rank {rank} refused its arguments: {one}")
        for name, first in theirs[0][0].items():
            if one[0][name] != first:
                raise ValueError(
                    f"all ranks must have the same {name}, got {first} on rank 0 and "
                    f"{one[0][name]} on rank {rank}"
                )
    shards = _shards([one[1] for one in theirs], [one[2] for one in theirs])
    ring = Ring(group, distributed.get_rank(group), distributed.get_world_size(group))
    listed = shards.positions(ring.rank)
    whole = range(shards.length)
    inputs = replace(
        local,
        pattern=checked_pattern(pattern, local.batch, whole, shards.length),
        bias=checked_bias(bias, query, None, whole, shards.length),
        first_position=None,
        listed_positions=listed,
    )
    problem = block_sparse.obstacle(inputs, lse=True)
    if problem:
        raise ValueError(f"attend with group= can't serve this call: {problem}")
    return RingInputs(inputs, shards, ring)


def _local_inputs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Bias | Tensor | None,
    scale: float | None,
    dropout: float,
    positions: int | Tensor | None,
    backend: str,
) -> AttentionInputs:
    """Check what concerns one rank only."""
    inputs = checked_inputs(query, key, value, None, None, scale, dropout, positions)
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
    return inputs


def _facts(inputs: AttentionInputs, pattern: Pattern | None, bias: Bias | None) -> dict[str, Any]:
    """Return what must be the same on all ranks."""
    return {
        "batch": inputs.batch,
        "heads": inputs.num_heads,
        "key heads": inputs.key.shape[1],
        "head sizes": (inputs.key.shape[-1], inputs.value.shape[-1]),
        "dtype": str(inputs.query.dtype),
        "scale": inputs.scale,
        "pattern": described(pattern),
        "bias": described(bias),
    }


def _runs(inputs: AttentionInputs, positions: object) -> Any:
    """Return the positions of this rank; None if they are to follow those of the rank before."""
    return None if positions is None else runs_of(inputs.query_positions)


def _shards(runs: list[Any], counts: list[int]) -> Shards:
    """Return the positions of all ranks.

    Raises:
        ValueError: they are not those of one sequence.
    """
    if any(one is None for one in runs):
        if not all(one is None for one in runs):
            raise ValueError("either all ranks must pass positions, or none")
        ends = torch.tensor(counts, device="cpu").cumsum(0).tolist()
        runs = [((end - count, end),) for end, count in zip(ends, counts, strict=True)]
    shards = Shards(tuple(runs))
    if shards.problem:
        raise ValueError(
            "the positions of all ranks must be 0, 1, 2, … of one sequence, each on one rank: "
            f"{shards.problem}"
        )
    return shards


def run(
    call: RingInputs,
) -> tuple[Float[Tensor, "batch heads queries value_dim"], Float[Tensor, "batch heads queries"]]:
    """Return the output of this rank's queries over the keys of all ranks, and the lse."""
    warm_up_mkl()
    inputs = call.inputs
    tensors = () if inputs.bias is None else inputs.bias.tensors
    output, lse = _RingAttention.apply(call, inputs.query, inputs.key, inputs.value, *tensors)
    return output, lse


class _RingAttention(torch.autograd.Function):
    """Each leg joined to those before it; in the backward pass, gradients go back to their rank."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        call: RingInputs, query: Tensor, key: Tensor, value: Tensor, *bias: Tensor
    ) -> tuple[Tensor, Tensor]:
        inputs, width = call.inputs, max(key.shape[-1], value.shape[-1])
        wide = _wide(query, width)
        output = empty(wide, inputs.lse_dtype).zero_()
        lse = empty(wide[..., :1], inputs.lse_dtype).fill_(-torch.inf)
        way = call.route(backward=False)
        for _, leg, rows in around(call.ring, way, key, value):
            if rows is not None:
                here = _inputs_of(inputs, leg, rows)
                tensors = (wide, _wide(here.key, width), _wide(here.value, width))
                join(here, leg.layout, tensors, output, lse)
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
        found = _gradients(ctx.call, (query, key, value), (output, lse), (grad, grad_lse), learned)
        of_bias = iter(found[3:])
        return None, *found[:3], *(next(of_bias) if needed else None for needed in learns)


def _gradients(
    call: RingInputs,
    tensors: tuple[Tensor, Tensor, Tensor],
    found: tuple[Tensor, Tensor],
    grads: tuple[Tensor | None, Tensor | None],
    learned: list[Tensor],
) -> list[Tensor]:
    """Return the gradients of query, key, value and the learned tensors of the bias.

    Args:
        call: the call.
        tensors: query, key and value.
        found: output and log-sum-exp.
        grads: their gradients.
        learned: the tensors of the bias that need a gradient.
    """
    query, key, value = tensors
    inputs, sizes = call.inputs, (key.shape[-1], value.shape[-1])
    width, dtype = max(sizes), inputs.lse_dtype
    grad = None if grads[0] is None else _wide(grads[0], width)
    whole = whole_rows(_wide(found[0], width), found[1], grad, grads[1])
    width = whole.grad.shape[-1]
    wide = _wide(query, width)
    of_query = empty(wide, dtype).zero_()
    of_key, of_value = (empty(_wide(x, width), dtype).zero_() for x in (key, value))
    of_bias = [torch.zeros_like(tensor, dtype=dtype) for tensor in learned]

    def add(leg: Leg, rows: KeysAndValues, *of_rows: Tensor) -> None:
        """Add to the gradients of query and bias, and to those of some keys and values."""
        here = _inputs_of(inputs, leg, rows)
        some = (wide, _wide(rows[0], width), _wide(rows[1], width))
        add_gradients(here, leg.layout, some, whole, [of_query, *of_rows], (learned, of_bias))

    def of_leg(leg: Leg, rows: KeysAndValues) -> Tensor:
        """Return the gradients of the keys and values of another rank, beside each other."""
        sums = [empty(_wide(x, width), dtype).zero_() for x in rows]
        add(leg, rows, *sums)
        both = torch.cat([x[..., :size] for x, size in zip(sums, sizes, strict=True)], dim=-1)
        if len(leg.wanted) == len(leg.positions):
            return both
        return both.index_select(2, leg.wanted.to(key.device))

    def add_returned(transfer: Transfer, rows: Int[Tensor, "rows"]) -> None:
        """Add the gradients of some own rows when they have come."""
        received = transfer.wait()
        if received is not None:
            at = rows.to(key.device)
            of_key[..., : sizes[0]].index_add_(2, at, received[..., : sizes[0]])
            of_value[..., : sizes[1]].index_add_(2, at, received[..., sizes[0] :])

    way, returning = call.route(backward=True), None
    for step, leg, rows in around(call.ring, way, key, value):
        if rows is not None and rows[0] is key:
            # All own rows in order: nothing to select or to send.
            add(leg, rows, of_key, of_value)
            continue
        no_rows = query.new_empty(*key.shape[:2], 0, sum(sizes), dtype=dtype)
        of_rows = no_rows if rows is None else of_leg(leg, rows)
        if returning is not None:
            add_returned(*returning)
        # The gradients of a rank's keys go back to it, and others bring those of ours.
        returning = call.ring.exchange(-step, of_rows, len(way.sent[step])), way.sent[step]
    if returning is not None:
        add_returned(*returning)
    sums = (of_query[..., : sizes[0]], of_key[..., : sizes[0]], of_value[..., : sizes[1]])
    return [x.to(query.dtype) for x in sums] + [
        total.to(tensor.dtype) for total, tensor in zip(of_bias, learned, strict=True)
    ]


def _inputs_of(inputs: AttentionInputs, leg: Leg, rows: KeysAndValues) -> AttentionInputs:
    """Return the inputs of a leg, with its keys and values."""
    bias = None if inputs.bias is None else BiasOfListed(inputs.bias, leg.positions)
    return replace(inputs, key=rows[0], value=rows[1], bias=bias)


def _wide(x: Tensor, width: int) -> Tensor:
    """Return x with zeros up to a head size, readable by the kernels."""
    return readable(pad(x, (0, width - x.shape[-1])) if x.shape[-1] < width else x)
