"""Gather the calls of a tensor-parallel model from all processes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, distributed

from regard.calls.call import AttentionCall
from regard.calls.check import worst
from regard.matrix.result import Result

Calls = Sequence[AttentionCall]


def gathered(calls: Calls, group: "distributed.ProcessGroup | None") -> list[AttentionCall]:
    """Return calls with the results of all heads; arguments and errors as for `Seen.gather`."""
    if not (distributed.is_available() and distributed.is_initialized()):
        raise RuntimeError("gather() needs torch.distributed: call init_process_group first")
    problem = next((_kept(call) for call in calls if call.view is not None), "")
    # Without tensors, and without patterns, which all processes have.
    mine = [replace(call, view=None, gradient=None, pattern=None) for call in calls]
    everyone: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(everyone, (problem, mine), group=group)
    for rank, (theirs, _) in enumerate(everyone):
        if theirs:
            raise ValueError(f"rank {rank}: {theirs}")
    counts = [len(theirs) for _, theirs in everyone]
    if len(set(counts)) != 1:
        raise ValueError(f"all ranks must have seen the same calls, got {counts} calls")
    ranks = zip(*(theirs for _, theirs in everyone), strict=True)
    return [_whole(call, parts) for call, parts in zip(calls, ranks, strict=True)]


def _kept(call: AttentionCall) -> str:
    return f"{call} has tensors, and gather() needs summaries: watch with keep=[Entropy(), …]"


def _whole(call: AttentionCall, parts: Calls) -> AttentionCall:
    """Join one call of all ranks."""
    traits = [(p.module, p.kind, p.batch, p.queries, p.keys, len(p.results)) for p in parts]
    failed = [part for part in parts if part.problem]
    if failed:
        return call.failed(failed[0].problem)
    if len(set(traits)) != 1:
        raise ValueError(f"all ranks must have seen the same calls, got {traits} for {call}")
    if all(part.num_all_heads is None for part in parts):
        for part in parts[1:]:
            for first, other in zip(parts[0].results, part.results, strict=True):
                _check_equal(call, first, other, list(first.tensors))
        return call
    order = sorted(parts, key=lambda part: part.first_head)
    total, found = order[0].num_all_heads, [head for part in order for head in part.head_numbers]
    if total is None or found != list(range(total)):
        raise ValueError(
            f"the ranks must have each head of {call} once, and have {found} of {total}: "
            "pass group=, the tensor-parallel one"
        )
    results = zip(*(part.results for part in order), strict=True)
    return replace(
        call,
        heads=total,
        key_heads=sum(part.key_heads for part in order),
        first_head=0,
        num_all_heads=None,
        check=worst([part.check for part in order]),
        results=tuple(_joined(call, list(result)) for result in results),
    )


def _joined(call: AttentionCall, parts: Sequence[Result]) -> Result:
    """Join the results of heads of several ranks."""
    first = parts[0]
    with_heads = [name for name in first.tensors if "heads" in first.axes(name)]
    others = [name for name in first.tensors if name not in with_heads]
    for part in parts[1:]:
        _check_equal(call, first, part, others)
    tensors = {name: _along_heads(parts, name) for name in with_heads}
    numbers = [int(one) for part in parts for one in part.labels["heads"]]
    return replace(first, labels=first.labels | {"heads": numbers}, **tensors)


def _along_heads(parts: Sequence[Result], name: str) -> Tensor:
    axis, first = parts[0].axes(name).index("heads"), getattr(parts[0], name)
    return torch.cat([getattr(part, name).to(first.device) for part in parts], dim=axis)


def _check_equal(call: AttentionCall, one: Result, other: Result, names: Sequence[str]) -> None:
    for name in names:
        here, there = getattr(one, name), getattr(other, name)
        same = here.shape == there.shape and torch.allclose(
            here.double(), there.double().to(here.device), rtol=1e-4, atol=1e-6, equal_nan=True
        )
        if not same:
            raise ValueError(
                f"the ranks have seen different inputs: {name} of {call}, which all of them have, "
                "is not the same"
            )
