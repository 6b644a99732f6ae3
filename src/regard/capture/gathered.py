"""Gather the calls of a tensor-parallel model from all processes."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, distributed

from regard.calls.call import AttentionCall
from regard.calls.check import worst
from regard.distributed.head_shards import head_order
from regard.distributed.ranks import Ranks, check_same
from regard.matrix.reduction import Result
from regard.matrix.scores import Scores
from regard.matrix.view import View
from regard.matrix.weights import Weights
from regard.versions import Overwritten

Calls = Sequence[AttentionCall]


def gathered(calls: Calls, group: "distributed.ProcessGroup | None") -> list[AttentionCall]:
    """Return calls with all heads; arguments and errors as for `Seen.gather`."""
    ranks = Ranks.of(group)

    def check() -> tuple[list[str], list[AttentionCall]]:
        for call in calls:
            _check_joinable(call)
        # All processes have the pattern, and tensors follow call by call.
        left_out = {"view": None, "gradient": None, "projection": None, "pattern": None}
        kinds = [type(call.source).__name__ for call in calls]
        return kinds, [replace(call, **left_out) for call in calls]

    kinds, parts = zip(*ranks.gather(check), strict=True)
    check_same([{"number of calls": len(of_rank)} for of_rank in kinds])
    check_same([{"sources of calls": of_rank} for of_rank in kinds])
    by_call = zip(calls, zip(*parts, strict=True), strict=True)
    return [_whole(call, of_ranks, ranks) for call, of_ranks in by_call]


def _check_joinable(call: AttentionCall) -> None:
    """Check that the heads of a call can be joined to those of others.

    Raises:
        ValueError: they can't.
    """
    source = call.source
    if source is None or call.num_all_heads is None:
        return
    try:
        source.check()
        if isinstance(source, Scores):
            source.check_value()
    except Overwritten as error:
        raise ValueError(f"{call}: {error}") from error
    if isinstance(source, Scores) and source.call.bias is not None and source.call.bias.num_heads:
        raise ValueError(
            f"{call} has a bias for each of its heads: gather summaries, with keep=[Entropy(), …]"
        )


def _whole(call: AttentionCall, parts: Calls, ranks: Ranks) -> AttentionCall:
    """Join one call of all ranks."""
    failed = [part for part in parts if part.problem]
    if failed:
        return call.failed(failed[0].problem)

    # 1. All ranks have seen the same call.
    names = ("module", "kind", "batch", "queries", "keys")
    check_same([{f"{name} of {call}": getattr(part, name) for name in names} for part in parts])
    check_same([{f"number of results of {call}": len(part.results)} for part in parts])
    if all(part.num_all_heads is None for part in parts):
        for part in parts[1:]:
            for first, other in zip(parts[0].results, part.results, strict=True):
                _check_equal(call, first, other, list(first.tensors))
        return call

    # 2. Parts in the order of their heads.
    total = parts[0].num_all_heads
    order = head_order(call, [part.head_numbers for part in parts], total)
    parts = [parts[rank] for rank in order]
    assert total is not None
    results = zip(*(part.results for part in parts), strict=True)
    return replace(
        call,
        heads=total,
        key_heads=sum(part.key_heads for part in parts),
        first_head=0,
        num_all_heads=None,
        check=worst([part.check for part in parts]),
        results=tuple(_joined(call, list(result)) for result in results),
        view=_view(call, order, ranks),
        gradient=None,
        projection=None,
    )


def _view(call: AttentionCall, order: Sequence[int], ranks: Ranks) -> View | None:
    """Return the matrix of all heads, of ranks in the order of their heads; None if not kept."""

    def joined(tensor: Tensor | None, axis: int = 1) -> Tensor | None:
        if tensor is None:
            return None
        parts = ranks.gather(lambda: tensor.cpu())
        return torch.cat([parts[rank] for rank in order], dim=axis).to(tensor.device)

    source = call.source
    if isinstance(source, Weights):
        assert isinstance(source.weights, Tensor)
        return View.whole(replace(source, weights=joined(source.weights)))
    if not isinstance(source, Scores):
        return None
    query, key, value = map(joined, (source.whole_query, source.whole_key, source.call.value))
    sinks = joined(source.call.sinks, axis=0)
    whole = replace(source.call, query=query, key=key, value=value, sinks=sinks, lse=None)
    return View.whole(replace(source, call=whole))


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
