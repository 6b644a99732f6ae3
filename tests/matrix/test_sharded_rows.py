"""Summaries of a sequence that several processes share, against one process."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, distributed

from regard.matrix import AttentionMatrix, EdgesResult, Result
from regard.patterns import Pattern, causal, columns, documents, everyone, padding, window
from regard.positions import alibi
from tests.attention.cases import case_of
from tests.matrix import on_ranks
from tests.ranks import Ranks, ranks

LENGTH = 92


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)])
def some(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    with ranks(request.param) as started:
        yield started


def tensors(result: Result) -> dict[str, Tensor]:
    """Return the tensors of a result, edges in the order of the matrix.

    Equal weights that were rounded differently may come in another order.
    """
    found = result.tensors
    if not isinstance(result, EdgesResult):
        return found
    size = 1000
    order = ((result.batch * size + result.heads) * size + result.queries) * size + result.keys
    return {name: x[order.argsort()] for name, x in found.items()}


@pytest.mark.parametrize("shuffled", [False, True], ids=["in runs", "shuffled"])
@pytest.mark.parametrize(
    "pattern",
    [
        everyone(),
        causal() & (window(before=20) | columns(every=16)),
        causal() & documents(torch.arange(LENGTH) // 30),
        padding([LENGTH, 50]),
    ],
    ids=str,
)
def test_summaries_equal_those_of_one_process(
    some: Ranks, pattern: Pattern, shuffled: bool
) -> None:
    chance = torch.Generator().manual_seed(0)
    case = case_of(queries=LENGTH, heads=2, group=2, pattern=pattern, where=torch.arange(LENGTH))
    case = replace(case, bias=alibi(4) if shuffled else None)
    sinks = torch.randn(4, dtype=torch.float64, generator=chance) if shuffled else None
    count = len(some(distributed.get_rank))
    order = torch.randperm(LENGTH, generator=chance) if shuffled else torch.arange(LENGTH)
    cuts = [LENGTH * place // (2 * count) + place for place in range(1, 2 * count)]
    chunks = list(torch.tensor_split(order, cuts))
    dealt = [torch.cat([chunks[rank], chunks[-1 - rank]]) for rank in range(count)]
    alone = AttentionMatrix(case.query, case.key, sinks=sinks, **case.options)
    expected = on_ranks.summaries(alone)
    for found in some(on_ranks.found, case, dealt, sinks, not shuffled):
        if isinstance(found, Exception):
            raise found
        assert len(found) == len(expected)
        for mine, theirs in zip(found, expected, strict=True):
            assert mine.labels == theirs.labels
            torch.testing.assert_close(
                tensors(mine), tensors(theirs), rtol=1e-10, atol=1e-10, equal_nan=True
            )


def test_rows_of_another_rank_are_refused() -> None:
    case = case_of(queries=8, pattern=causal(), where=torch.arange(8))
    dealt = [torch.arange(0, 4), torch.arange(4, 8)]
    alone = AttentionMatrix(case.query, case.key, **case.options)
    with ranks(2) as two:
        for rank, (row, problem) in enumerate(two(on_ranks.rows, case, dealt)):
            torch.testing.assert_close(row, alone.rows(dealt[rank][:1]))
            assert problem.startswith(f"query {4 - 4 * rank} is on another rank: use summarize")
        for error in two(on_ranks.with_other_sinks):
            with pytest.raises(ValueError, match="all ranks must have the same sinks, got"):
                raise error
