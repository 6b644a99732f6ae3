"""Reductions where there is little or nothing to reduce, and of NaN."""

import pytest
import torch

from regard.matrix import AttentionMatrix, Hits, Mass
from regard.patterns import everyone, padding
from tests.attention.cases import case_of
from tests.matrix.cases import matrix_of
from tests.matrix.definitions import CHECKS, check_part, each_reduction
from tests.matrix.known import known_of


def test_a_matrix_in_which_nobody_may_look() -> None:
    case = case_of(batch=2, heads=3, queries=5, keys=7, pattern=~everyone())
    matrix, known = matrix_of(case), known_of(case)
    for name in CHECKS:
        check_part(name, matrix, known)
    assert bool((matrix.entropy().nats == 0).all())
    assert bool((matrix.effective_keys().count == 0).all())
    assert bool(matrix.received().mean.isnan().all())
    assert bool((matrix.received().queries == 0).all())
    assert bool((matrix.received().total == 0).all())
    distance = matrix.distance()
    assert bool(distance.mean.isnan().all())
    assert bool(distance.quantiles.isnan().all())
    assert bool((matrix.top(2).keys == -1).all())
    assert matrix.edges(threshold=0.01).total == 0
    (hits,) = matrix.summarize(Hits(everyone()))
    assert bool((hits.rows == 0).all())
    assert bool(hits.rate.isnan().all())


def test_a_head_that_looks_at_nothing_beside_one_that_does() -> None:
    bias = torch.zeros(1, 2, 5, 5)
    bias[:, 1] = -torch.inf
    matrix = matrix_of(case_of(batch=1, heads=2, queries=5, bias=bias, dtype=torch.float32))[0]
    assert matrix.distance().mean.isnan().tolist() == [False, True]
    assert matrix.distance().quantiles.isnan().all(dim=-1).tolist() == [False, True]
    assert matrix.received().mean.isnan().all(dim=-1).tolist() == [False, True]
    assert matrix.received().queries.tolist() == [[5] * 5, [0] * 5]
    assert matrix.effective_keys().count[1].tolist() == [0.0] * 5


def test_received_is_nan_where_nobody_may_look() -> None:
    found = matrix_of(case_of(batch=1, heads=1, queries=5, pattern=padding([3])))[0, 0].received()
    assert found.mean.isnan().tolist() == [False, False, False, True, True]
    assert found.queries.tolist() == [5, 5, 5, 0, 0]


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("sizes", [(0, 3, 5, 7), (2, 3, 0, 7), (2, 3, 5, 0), (2, 3, 0, 0)])
def test_axes_of_size_zero(name: str, sizes: tuple[int, int, int, int]) -> None:
    batch, heads, queries, keys = sizes
    query, key = torch.zeros(batch, heads, queries, 4), torch.zeros(batch, heads, keys, 4)
    matrix = AttentionMatrix(query, key, positions=0)
    if name == "Mass":
        (found,) = matrix.summarize(Mass({"all": torch.ones(keys, dtype=torch.bool)}))
    else:
        (found,) = matrix.summarize(CHECKS[name][0](None))  # type: ignore[arg-type]
    for one, values in found.tensors.items():
        assert values.shape == tuple(len(found.labels[axis]) for axis in found.axes(one))
        if "cell_rows" not in found.axes(one) and found.axes(one) != ("edges",):
            assert values.shape[:2] == (batch, heads)


def test_rows_without_keys_look_at_nothing() -> None:
    matrix = AttentionMatrix(torch.zeros(1, 2, 5, 4), torch.zeros(1, 2, 0, 4), positions=0)
    assert matrix.entropy().nats.tolist() == [[[0.0] * 5] * 2]
    assert matrix.effective_keys().count.tolist() == [[[0.0] * 5] * 2]
    assert matrix.top(3).keys.tolist() == [[[[-1] * 3] * 5] * 2]
    assert bool(matrix.distance().mean.isnan().all())


@each_reduction
def test_one_token(name: str) -> None:
    case = case_of(batch=2, heads=3, queries=1, keys=1)
    check_part(name, matrix_of(case), known_of(case))


def test_one_token_by_hand() -> None:
    x = torch.randn(1, 1, 1, 5)
    matrix = AttentionMatrix(x, x)[0, 0]
    assert matrix.entropy().nats.tolist() == [0.0]
    assert matrix.effective_keys().count.tolist() == [1.0]
    assert matrix.received().mean.tolist() == [1.0]
    assert matrix.distance((0.0, 1.0)).quantiles.tolist() == [0.0, 0.0]
    # By tiles, from the log-sum-exp of a fused call, which rounds.
    assert matrix.offsets(1).near.tolist() == pytest.approx([0.0, 1.0, 0.0], abs=1e-6)
    assert matrix.pool(5).cells.flatten().tolist() == pytest.approx([1.0], abs=1e-6)
    top = matrix.top(2)
    assert top.keys.tolist() == [[0, -1]]
    assert top.weights.flatten().tolist() == pytest.approx([1.0, 0.0], abs=1e-6)


def test_nan_in_a_query_is_nan_in_what_comes_of_its_row() -> None:
    case = case_of(batch=1, heads=2, queries=7, dtype=torch.float32)
    case.query[0, 1, 3] = torch.nan
    matrix = matrix_of(case)[0]
    bad = torch.zeros(2, 7, dtype=torch.bool)
    bad[1, 3] = True
    assert torch.equal(matrix.entropy().nats.isnan(), bad)
    assert torch.equal(matrix.effective_keys().count.isnan(), bad)
    assert torch.equal(matrix.top(2).weights.isnan().any(dim=-1), bad)
    assert matrix.received().mean.isnan().all(dim=-1).tolist() == [False, True]
    for how in ("mean", "max"):
        cells = matrix.pool(3, how).cells.isnan()
        assert cells.any(dim=-1).tolist() == [[False] * 3, [False, True, False]]
    distance = matrix.distance()
    assert distance.mean.isnan().tolist() == [False, True]
    assert distance.quantiles.isnan().all(dim=-1).tolist() == [False, True]
    assert matrix.offsets(2).beyond.isnan().tolist() == [False, True]
    edges = matrix.edges(threshold=1e-6)
    assert not bool(edges.weights.isnan().any())
    assert edges.total == 2 * 7 * 7 - 7
