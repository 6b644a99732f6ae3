"""Attention over a sequence that several processes share, against one process."""

import inspect
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from itertools import product
from typing import Any, get_type_hints

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import regard
from regard.attention.ring import schedule
from regard.attention.ring.schedule import rank_work
from regard.attention.ring.shards import shard_positions
from regard.patterns import (
    Pattern,
    causal,
    columns,
    documents,
    everyone,
    from_mask,
    padding,
    window,
)
from regard.positions import Relative, softcap
from regard.positions.alibi import Alibi
from tests.attention import on_ranks
from tests.attention.cases import Case, biases, case_of, results
from tests.ranks import Ranks, ranks
from tests.strategies import fewer, patterns

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module", params=[1, 2, 4], ids=lambda count: f"{count} ranks")
def ring(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    with ranks(request.param) as started:
        yield started


@pytest.fixture(scope="module")
def two() -> Iterator[Ranks]:
    with ranks(2) as started:
        yield started


def compare(ring: Ranks, case: Case, dealt: list[Tensor], *, lse: bool = True) -> None:
    """Hold the parts of all ranks against the reference in one process."""
    found = ring(on_ranks.results, case, dealt, lse)
    for one in found:
        if isinstance(one, Exception):
            raise one
    place = torch.cat(dealt).argsort()
    for name, expected in results(case, "reference", lse=lse).items():
        parts = [one[name] for one in found]
        mine = sum(parts) if name == "grad of bias" else torch.cat(parts, dim=2)[:, :, place]
        # A dictionary, so that a failure says which.
        torch.testing.assert_close({name: mine}, {name: expected}, rtol=1e-10, atol=1e-10)


def num_ranks(ring: Ranks) -> int:
    return len(ring(_nothing))


def _nothing() -> None:
    """Do nothing."""


@st.composite
def deals(draw: st.DrawFn, length: int, count: int) -> list[Tensor]:
    """Deal positions out to ranks: in two chunks each of any size, or shuffled."""
    chance = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    order = torch.arange(length)
    if draw(st.booleans()):
        order = torch.randperm(length, generator=chance)
    cuts = torch.randint(0, length + 1, (2 * count - 1,), generator=chance).sort().values
    chunks = list(torch.tensor_split(order, cuts))
    return [torch.cat([chunks[rank], chunks[-1 - rank]]) for rank in range(count)]


@fewer
@given(data=st.data())
def test_equals_one_process(ring: Ranks, data: st.DataObject) -> None:
    length = data.draw(st.sampled_from([1, 7, 37, 97, 200]))
    case = case_of(
        heads=data.draw(st.sampled_from([1, 2])),
        group=data.draw(st.sampled_from([1, 3])),
        queries=length,
        key_dim=data.draw(st.sampled_from([3, 5])),
        value_dim=data.draw(st.sampled_from([3, 5])),
        pattern=data.draw(patterns(length, 2)),
        where=torch.arange(length),
    )
    kinds = ("none", "none", "alibi", "relative", "softcap", "tensor")
    bias = data.draw(biases(case, dtype=torch.float64, kinds=kinds))
    case = replace(case, bias=bias)
    dealt = data.draw(deals(length, num_ranks(ring)))
    compare(ring, case, dealt, lse=data.draw(st.booleans()))


@pytest.mark.parametrize(
    "pattern",
    [
        causal(),
        causal() & window(before=70),
        causal() & (window(before=20) | columns(every=16)),
        causal() & documents(torch.arange(512) // 100),
        padding([512, 300]),
    ],
    ids=str,
)
def test_zigzag(ring: Ranks, pattern: regard.patterns.Pattern) -> None:
    """Long enough for several blocks of a rank, and for some that no rank needs."""
    count = num_ranks(ring)
    shards = shard_positions(512, count)
    case = case_of(queries=512, group=2, heads=1, pattern=pattern)
    compare(ring, case, [shards.positions(rank) for rank in range(count)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_dtypes_are_as_close_as_blocks(ring: Ranks, dtype: torch.dtype) -> None:
    count = num_ranks(ring)
    shards = shard_positions(256, count)
    dealt = [shards.positions(rank) for rank in range(count)]
    case = case_of(queries=256, pattern=causal(), dtype=dtype)
    found = ring(on_ranks.results, case, dealt, True)
    place = torch.cat(dealt).argsort()
    exact, blocks = results(case.to(torch.float64), "reference"), results(case, "blocks")
    for name, expected in exact.items():
        mine = torch.cat([one[name] for one in found], dim=2)[:, :, place]
        assert mine.dtype == blocks[name].dtype
        bound = (blocks[name].double() - expected).abs().max()
        assert (mine.double() - expected).abs().max() <= 2 * bound + 1e-6


def test_shards_are_put_together_again(ring: Ranks) -> None:
    x = torch.randn(3, 16, 2)
    for order in ("zigzag", "contiguous"):
        for part, places, whole in ring(on_ranks.sharded, x, order):
            torch.testing.assert_close(part, x[:, places], rtol=0, atol=0)
            torch.testing.assert_close(whole, x, rtol=0, atol=0)


@pytest.mark.parametrize("length", [24, 3], ids=["equal parts", "of 4 ranks, one has nothing"])
def test_ranks_follow_one_another_by_default(ring: Ranks, length: int) -> None:
    x = torch.randn(1, 2, length, 4, dtype=torch.float64)
    found = torch.cat(ring(on_ranks.in_order, x, causal()), dim=2)
    expected = regard.attend(x, x, x, pattern=causal(), backend="reference")
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_plan_says_what_is_sent(ring: Ranks) -> None:
    count = num_ranks(ring)
    shards = shard_positions(1024, count)
    pattern = causal() & window(before=40)
    case = case_of(queries=1024, pattern=pattern, dtype=torch.float32)
    found = ring(on_ranks.planned, case, [shards.positions(rank) for rank in range(count)])
    for rank, (plan, sent) in enumerate(found):
        assert plan.ranks == found[0][0].ranks
        rows = [0] * count
        for to, number in sent:
            rows[to] += number
        assert plan.ranks[rank].sent == tuple(rows)
        # Keys and values of 5 features, for 3 heads and 2 sequences, in 4 bytes.
        assert plan.bytes_per_row == 2 * 3 * 10 * 4
        # 2 R − 2 borders between chunks of different ranks, with up to 40 keys in blocks of 32.
        assert plan.bytes_sent == plan.bytes_per_row * (2 * count - 2) * 64
        assert str(plan).startswith(f"blocks: the sequence is shared by {count} ranks. ")


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("order", ["zigzag", "contiguous"])
@pytest.mark.parametrize(
    "pattern",
    [
        everyone(),
        causal(),
        causal() & window(before=9),
        causal() & (window(before=5) | columns(every=16)),
        documents(torch.arange(96) // 20),
        padding([96, 50]),
    ],
    ids=str,
)
def test_steps_have_each_pair_once(
    pattern: Pattern, order: Any, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "_RUN_LENGTH", 8)
    if not written:
        monkeypatch.setattr(import_module("regard.patterns.layout"), "WRITTEN_PAIRS", 0)
    shards = shard_positions(96, 2, order)
    for rank, source in product(range(2), repeat=2):
        step = schedule.ring_step(pattern, shards, rank, source, 16)
        queries = shards.positions(rank)
        expected = pattern.dense(queries, 96).expand(2, -1, -1).int()
        expected = expected * shards.position_set(source).has(torch.arange(96))
        found = torch.zeros_like(expected)
        for strip in step.layout.strips:
            for batch in range(2) if strip.batch is None else [strip.batch]:
                mask = strip.allowed(queries, batch, torch.device("cpu"), step.positions)
                for number in range(strip.num_rectangles):
                    rows, keys = strip.queries.index()[number], strip.keys.index()[number]
                    allowed = torch.ones(1, 1, 1) if mask is None else mask
                    one = allowed[number % len(allowed)].int()
                    found[batch, rows[:, None], step.positions[keys]] += one
        assert torch.equal(found, expected)


def test_zigzag_balances_causal_work() -> None:
    for count in (2, 4):
        pairs = [rank.num_pairs for rank in rank_work(causal(), shard_positions(8192, count), 64)]
        assert max(pairs) * count <= 1.1 * sum(pairs)
        contiguous = shard_positions(8192, count, "contiguous")
        alone = [rank.num_pairs for rank in rank_work(causal(), contiguous, 64)]
        assert max(alone) * count > 1.4 * sum(alone)


def test_blocks_that_are_empty_are_neither_computed_nor_sent() -> None:
    pattern = causal() & window(before=255)
    found = rank_work(pattern, shard_positions(16384, 4), 64)
    everything = rank_work(regard.everyone(), shard_positions(16384, 4), 64)
    assert sum(sum(one.sent) for one in everything) == 3 * 16384
    assert sum(sum(one.sent) for one in found) <= 0.05 * 3 * 16384
    assert sum(one.num_pairs for one in found) <= 16384 * (256 + 64 + 32)


def _learned() -> Relative:
    bias = Relative(2, 8)
    torch.nn.init.ones_(bias.table)
    return bias


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({}, {"pattern": causal()}, "all ranks must have the same pattern, got None on rank 0"),
        ({}, {"dtype": torch.float64}, "all ranks must have the same dtype, got torch.float32 on"),
        (
            {"pattern": documents(torch.arange(8) // 2)},
            {"pattern": documents(torch.arange(8) // 4)},
            r"the same pattern, got documents\(8 ids\) \(\w+\) on rank 0 and documents",
        ),
        (
            {"pattern": causal() & from_mask(torch.ones(8, 8).bool())},
            {"pattern": causal() & from_mask(torch.eye(8).bool())},
            "the same pattern, got causal",
        ),
        ({"bias": Alibi([1.0, 2.0])}, {"bias": Alibi([2.0, 1.0])}, "the same bias, got Alibi"),
        ({"bias": softcap(2.0)}, {"bias": softcap(3.0)}, "the same bias, got Softcap"),
        ({"bias": Relative(2, 8)}, {"bias": _learned()}, "the same bias, got Relative"),
        ({"positions": 0}, {}, "either all ranks must pass positions, or none"),
        ({"positions": 0}, {"positions": 5}, "each on one rank: no rank has position 4"),
        ({"positions": 0}, {"positions": 3}, "each on one rank: two ranks have position 3"),
        ({"keys": 3}, {}, "the queries and keys of the same positions, got 4 and 3"),
        ({}, {"backend": "flex"}, "backend must be \"auto\" or \"blocks\" with group=, got 'flex'"),
        ({"dropout": 0.1}, {"dropout": 0.1}, "its kernels have no dropout"),
        (
            {"bias": torch.zeros(1, 1, 4, 8)},
            {"bias": torch.zeros(1, 1, 4, 8)},
            "bias must be a Bias: pass regard.positions.from_tensor",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_on_all_ranks(
    two: Ranks, first: dict[str, Any], second: dict[str, Any], message: str
) -> None:
    for error in two(on_ranks.refused, first, second):
        with pytest.raises(ValueError, match=message):
            raise error


def test_type_hints_can_be_read() -> None:
    assert "group" in get_type_hints(regard.attend)


def test_lengths_must_fit_the_order() -> None:
    with pytest.raises(ValueError, match="the length must be a multiple of 4, got 10: pad the end"):
        shard_positions(10, 2)
    with pytest.raises(ValueError, match=r'order must be .*, got "spiral"'):
        shard_positions(8, 2, "spiral")  # pyright: ignore[reportArgumentType]


def test_a_sharded_call_has_no_matrix(two: Ranks) -> None:
    reason = "the sequence is sharded over processes, its keys are not all here"
    assert two(on_ranks.watched) == [reason, reason]


@pytest.mark.slow
@pytest.mark.parametrize("backward", [False, True])
def test_a_rank_that_dies_raises_on_the_others(backward: bool) -> None:
    with ranks(3) as started:
        *others, dead = started(on_ranks.left_alone, backward)
    assert isinstance(dead, EOFError)
    for error in others:
        assert isinstance(error, RuntimeError), error


def test_what_is_no_group_is_refused() -> None:
    x = torch.randn(1, 2, 4, 8)
    # Without the type checks of these tests, the message is another one.
    attend = inspect.unwrap(regard.attend)
    with pytest.raises(TypeError, match="group must be a process group, got str"):
        attend(x, x, x, group="x")  # pyright: ignore[reportArgumentType]
