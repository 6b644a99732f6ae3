"""Summaries of a sequence that several processes share, against one process."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import zarr
from torch import Tensor, distributed

import regard
from regard.matrix import AttentionMatrix, EdgesResult, Result
from regard.patterns import Pattern, causal, columns, documents, everyone, padding, window
from regard.positions import alibi
from tests.attention.cases import case_of
from tests.matrix import on_ranks
from tests.ranks import Ranks, ranks

pytestmark = pytest.mark.processes

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


def test_one_recording(some: Ranks, tmp_path: Path) -> None:
    # Two ranks share three key heads out, four ranks six heads, with their key heads repeated.
    pattern = causal() & (window(before=20) | columns(every=16))
    case = case_of(queries=LENGTH, heads=3, group=2, pattern=pattern, where=torch.arange(LENGTH))
    chance = torch.Generator().manual_seed(0)
    sinks = torch.randn(6, dtype=torch.float64, generator=chance)
    count = len(some(distributed.get_rank))
    dealt = list(torch.randperm(LENGTH, generator=chance).tensor_split(count))
    assert some(on_ranks.recorded, case, dealt, sinks, tmp_path / "some.regard") == [None] * count
    alone = AttentionMatrix(case.query, case.key, sinks=sinks, **case.options)
    regard.save(alone, tmp_path / "one.regard", tokens=["token"] * LENGTH, batch=1)
    (found,) = regard.open(tmp_path / "some.regard")
    assert (found.heads, found.pattern) == (6, pattern)
    torch.testing.assert_close(found.matrix.dense(), alone[1:].dense(), rtol=0, atol=1e-12)
    arrays, others = (
        zarr.open_group(tmp_path / name / "calls/0000", mode="r")
        for name in ("some.regard", "one.regard")
    )
    theirs = dict(others.members(max_depth=None))
    assert dict(arrays.members(max_depth=None)).keys() == theirs.keys() > {"query", "thumbs"}
    for name, array in theirs.items():
        if isinstance(array, zarr.Array):
            mine, wanted = torch.from_numpy(arrays[name][...]), torch.from_numpy(array[...])
            if name == "key":
                wanted = wanted.repeat_interleave(len(mine) // len(wanted), dim=0)
            # Maps are rounded to 12 bits.
            torch.testing.assert_close(mine, wanted, rtol=2**-10, atol=1e-6, equal_nan=True)
    mine, theirs = (dict(group.attrs)["regard"]["measures"] for group in (arrays, others))
    assert mine.keys() == theirs.keys()
    for name, values in theirs.items():
        assert mine[name] == pytest.approx(values, rel=1e-6, nan_ok=True), name


def test_what_is_not_one_recording(tmp_path: Path) -> None:
    with ranks(2) as two:
        for problems in two(on_ranks.not_recorded, tmp_path / "none.regard"):
            assert problems == [
                "a matrix of several ranks must have no bias for each head",
                "there must be a head for each of 2 ranks, got 1",
                "a matrix of several ranks must be whole, not a part",
                "group must be that of the matrix: those ranks have its rows",
            ]
    assert not any(tmp_path.iterdir())


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


def test_arguments_that_are_wrong_on_one_rank_are_refused_on_all() -> None:
    with ranks(2) as two:
        other, own = two(on_ranks.with_a_wrong_lse)
    assert "of shape [1, 2, 4], got torch.float32 of shape [1, 2, 5]" in str(own)
    assert str(other) == f"rank 1 has failed: ValueError: {own}"


@pytest.mark.parametrize("inference", [False, True])
def test_a_matrix_is_independent_of_tensors_that_are_modified_later(inference: bool) -> None:
    with ranks(2) as two:
        for found in two(on_ranks.kept_after_modification, inference):
            if isinstance(found, Exception):
                raise found
            expected, *later = found
            for rows in later:
                assert torch.equal(rows, expected)


def test_a_matrix_of_learned_tensors_has_no_gradients() -> None:
    with ranks(2) as two:
        assert two(on_ranks.with_gradients) == [[False] * 3] * 2
