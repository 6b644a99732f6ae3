"""The heads of a layer in this process, under tensor parallelism."""

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

from torch import nn

from regard.distributed.ranks import is_initialized

_QUERY = ("q_proj", "q_b_proj", "query", "query_proj", "q", "q_lin", "wq", "to_q")
"""Names of the query projection in attention modules."""


class HeadShard(NamedTuple):
    """The heads of a layer that a process has.

    Attributes:
        first: number of the first one.
        total: number of heads of all processes.
    """

    first: int
    total: int


def head_shard(module: nn.Module, heads: int, head_dim: int | None) -> HeadShard:
    """Return the heads of a layer in this process.

    Args:
        module: the module of the call.
        heads: number of heads of the call.
        head_dim: features of a head's query, if known.

    Raises:
        ValueError: the layer is sharded over processes, and its heads are unknown.
    """
    if not is_initialized():
        return HeadShard(0, heads)
    total = getattr(getattr(module, "config", None), "num_attention_heads", None)
    if heads == total:
        return HeadShard(0, heads)
    if not any(_is_sharded(parameter) for parameter in module.parameters()):
        # Earlier versions of transformers shard without DTensors, and leave a plan on the modules.
        if any(getattr(part, "_hf_tp_plan", None) for part in module.modules()):
            raise ValueError(f"{_SHARDED}: use a transformers that shards with DTensors (5.16)")
        return HeadShard(0, heads)
    # All heads have equally many rows, so the rows of a shard determine its heads.
    children = dict(module.named_children())
    projection = next((children[name] for name in _QUERY if name in children), None)
    weight = getattr(projection, "weight", None)
    if not _is_sharded(weight):
        raise ValueError(f"{_SHARDED}: no sharded projection to queries was found ({_QUERY[0]}, …)")
    if _is_fsdp(projection) and weight.device_mesh.ndim == 1:
        # Sharded between calls only.
        return HeadShard(0, heads)
    rows, here, before = weight.shape[0], weight.to_local().shape[0], _rows_before(weight)
    width = here // heads if heads else 0
    if not width or here % heads or rows % width or before % width:
        raise ValueError(f"{_SHARDED}: {heads} heads have {here} of {rows} rows of the projection")
    if total is None and width != head_dim:
        raise ValueError(f"{_SHARDED}: {width} rows of the projection for {head_dim} features")
    if total not in (None, rows // width):
        raise ValueError(f"{_SHARDED}: {rows // width} by its projection, {total} by its config")
    return HeadShard(before // width, rows // width)


def head_order(call: object, heads: Sequence[range], total: int | None) -> list[int]:
    """Return ranks in the order of their heads, where several processes have the heads of a call.

    Args:
        call: the call, for messages.
        heads: the numbers of the heads of each rank.
        total: the number of heads of all ranks.

    Raises:
        ValueError: the ranks don't have each head once.

    >>> head_order("call 0", [range(4, 8), range(0, 4)], 8)
    [1, 0]
    """
    ranks = sorted(range(len(heads)), key=lambda rank: heads[rank].start)
    numbers = [head for rank in ranks for head in heads[rank]]
    if total is None or numbers != list(range(total)):
        raise ValueError(
            f"the ranks must have each head of {call} once, and have {numbers} of {total}: "
            "pass group=, the tensor-parallel one"
        )
    return ranks


_SHARDED = "its heads are sharded over processes, and which they are can't be told"


def _rows_before(weight: Any) -> int:
    """Return the number of rows of a weight in the processes before this one.

    Raises:
        ValueError: it is not sharded by rows, over one axis of processes.
    """
    from torch.distributed.tensor import Shard

    mesh, placements = weight.device_mesh, weight.placements
    axes = [axis for axis in range(mesh.ndim) if mesh.size(axis) > 1]
    split = [axis for axis in axes if not placements[axis].is_replicate()]
    if len(split) != 1 or type(placements[split[0]]) is not Shard or placements[split[0]].dim:
        raise ValueError(f"{_SHARDED}: the projection has the placements {placements}")
    each = -(-weight.shape[0] // mesh.size(split[0]))
    return mesh.get_local_rank(split[0]) * each


def _is_sharded(parameter: Any) -> TypeGuard[Any]:
    """Return whether a parameter is a sharded DTensor."""
    # Without that module there are no DTensors, and importing it is slow.
    tensors = sys.modules.get("torch.distributed.tensor")
    if tensors is None or not isinstance(parameter, tensors.DTensor):
        return False
    mesh = parameter.device_mesh
    return any(
        mesh.size(axis) > 1 and not placement.is_replicate()
        for axis, placement in enumerate(parameter.placements)
    )


def _is_fsdp(module: object) -> bool:
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and isinstance(module, fsdp.FSDPModule)
