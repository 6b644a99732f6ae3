"""Each reduction against its definition, on matrices of all kinds."""

import pytest
import torch
from hypothesis import given
from torch import Tensor

import regard
from regard.matrix import AttentionMatrix, Edges, tile_plan
from regard.matrix.tiles import tiles
from regard.patterns import Pattern, causal, everyone, strided, window
from tests.attention.cases import Case, case_of
from tests.matrix.cases import assert_within, dense_weights, matrix_of, tolerance
from tests.matrix.definitions import COUNT, check_all, check_part, each_reduction
from tests.matrix.known import DTYPES, known_of, matrices
from tests.strategies import fewer

LONG = (257, 401)
"""Lengths at which the strongest keys are searched for in groups of 64: above 64 · 2 · COUNT."""

assert min(LONG) > 64 * 2 * COUNT


@each_reduction
@fewer
@given(drawn=matrices())
def test_a_reduction_is_its_definition(name: str, drawn: tuple[Case, Tensor | None]) -> None:
    check_part(name, matrix_of(*drawn), known_of(*drawn))


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", LONG)
@pytest.mark.parametrize("pattern", [everyone(), causal(), window(23) | strided(64)])
def test_long_rows(dtype: torch.dtype, length: int, pattern: Pattern) -> None:
    case = case_of(batch=1, heads=2, queries=67, keys=length, pattern=pattern, dtype=dtype)
    check_all(matrix_of(case), known_of(case))


@pytest.mark.parametrize("rows", [64, 67])
def test_statistics_of_several_chunks(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile_plan, "CPU_CHUNK", 64 * 128)
    case = case_of(heads=2, queries=rows, keys=401, pattern=causal(), dtype=torch.float32)
    matrix, exact = matrix_of(case), dense_weights(case)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for tile in tiles(matrix.view, ("sums", "entropy")):
            assert {"sums", "entropy", "row_sums"} <= set(tile.statistics)
            some = exact[tile.batch, tile.heads, tile.queries, :][..., tile.columns]
            bound = tolerance(case, torch.float32)
            assert_within(tile.row_sums, some.sum(dim=3), bound)
            assert_within(tile.entropy, torch.special.entr(some).sum(dim=3), 10 * bound)
            assert_within(tile.column_sums, some.sum(dim=2), 16 * bound)
            assert_within(tile.weights_at(torch.tensor([[3]])), some[..., 3:4], bound)
            assert_within(tile.weights, some, bound)


@pytest.mark.parametrize("count", [1, 3, 64, 100])
def test_top_keys_as_a_sort_of_the_rows(count: int) -> None:
    case = case_of(batch=2, heads=2, queries=13, keys=64 * 7 + 5, scale=3.0)
    expected = known_of(case).weights.sort(dim=3, descending=True, stable=True)
    found = matrix_of(case).top(count)
    assert torch.equal(found.keys, expected.indices[..., :count])


@pytest.mark.parametrize("limit", [0, 1, 7, 40])
def test_a_limit_keeps_the_strongest_edges(limit: int) -> None:
    case = case_of(queries=61, pattern=causal())
    every, some = (matrix_of(case).edges(threshold=0.1, limit=n) for n in (10_000, limit))
    assert every.total == some.total == len(every.weights) > 40
    assert torch.equal(some.weights, every.weights[:limit])
    for name in ("batch", "heads", "queries", "keys"):
        assert torch.equal(getattr(some, name), getattr(every, name)[:limit])


def test_edges_of_equal_weight_are_in_the_order_of_the_matrix() -> None:
    x = torch.zeros(1, 2, 7, 3)
    found = AttentionMatrix(x, x, pattern=window(0, 2)).edges(threshold=0.2, limit=8)
    assert found.total == 2 * (3 * 5 + 2 + 1)
    assert (
        found.weights.tolist()
        == [1.0, 1.0, 0.5, 0.5, 0.5, 0.5, *found.weights[:2].tolist()][:6]
        + found.weights[6:].tolist()
    )
    assert found.heads.tolist()[:6] == [0, 1, 0, 0, 1, 1]
    assert found.queries.tolist()[:6] == [6, 6, 5, 5, 5, 5]
    assert found.keys.tolist()[:6] == [6, 6, 5, 6, 5, 6]


@pytest.mark.parametrize("limit", [1, 50, 1_000, 2_000_000])
@pytest.mark.parametrize("alike", [False, True])
def test_edges_of_a_low_threshold_are_kept_up_to_the_limit(limit: int, alike: bool) -> None:
    """No more than twice the limit is ever held, and the rest is counted."""
    case = case_of(batch=2, heads=3, queries=301, keys=331, pattern=causal(), dtype=torch.float32)
    if alike:
        case.query.zero_()
    matrix = matrix_of(case)[:, :, 1:, 2:]
    reduction, most = Edges(1e-30, limit), 0
    state = reduction.start(matrix.view)
    for tile in tiles(matrix.view, reduction.facts):
        state = reduction.update(state, tile)
        most = max(most, sum(map(len, state.pairs)))
    found, weights = reduction.finish(state), matrix.dense()
    allowed = (weights >= 1e-30).nonzero()
    assert most < 2 * limit
    assert found.total == len(allowed)
    values, order = weights[tuple(allowed.T)].sort(descending=True, stable=True)
    assert torch.equal(found.weights, values[:limit])
    places = torch.stack([found.batch, found.heads, found.queries - 1, found.keys - 2], dim=1)
    assert torch.equal(places, allowed[order][:limit])


@fewer
@given(drawn=matrices())
def test_a_given_log_sum_exp(drawn: tuple[Case, Tensor | None]) -> None:
    case, sinks = drawn
    _, lse = regard.attend_with_lse(case.query, case.key, case.value, **case.options)
    if sinks is not None:
        lse = torch.logaddexp(lse, sinks[:, None].to(lse.dtype))
    check_all(matrix_of(case, sinks, lse=lse.detach()), known_of(case, sinks))


@fewer
@given(drawn=matrices(biased=("none", "alibi", "softcap")))
def test_weights_that_are_written_down(drawn: tuple[Case, Tensor | None]) -> None:
    case, _ = drawn
    known = known_of(*drawn)
    weights = known.weights.to(case.query.dtype)
    matrix = AttentionMatrix.from_weights(weights, pattern=case.pattern, positions=case.where)
    check_all(matrix, known)


def test_all_of_the_mass_lies_within_the_farthest_distance_that_has_some() -> None:
    """A quantile of 1 is where the mass ends, not where the matrix does."""
    for seed in range(20):
        case = case_of(batch=1, heads=5, queries=131, pattern=window(59), seed=seed)
        quantiles = matrix_of(case).distance((1.0,)).quantiles
        assert quantiles.unique().tolist() == [59.0]


def test_effective_keys_by_hand() -> None:
    weights = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.25, 0.0], [0.2, 0.2, 0.2], [0.0, 0.0, 0.0]])
    matrix = AttentionMatrix.from_weights(weights[None, None])[0, 0]
    torch.testing.assert_close(matrix.effective_keys().count, torch.tensor([2.0, 2.0, 3.0, 0.0]))


def test_forbidden_by_a_bias_is_not_counted_among_those_who_may_look() -> None:
    bias = torch.zeros(1, 1, 3, 3)
    bias[0, 0, :2, 2] = -torch.inf
    x = torch.zeros(1, 1, 3, 4)
    found = AttentionMatrix(x, x, bias=bias)[0, 0].received()
    assert found.queries.tolist() == [3, 3, 1]
    torch.testing.assert_close(found.mean, torch.tensor([4 / 9, 4 / 9, 1 / 3]))
