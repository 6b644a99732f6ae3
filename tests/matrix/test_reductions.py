"""Each reduction against its definition, written out over the whole matrix in float64.

The allowances derive from the share by which a weight may be off: see `tests.matrix.cases`.
What is made of weights are sums over rows or columns, or both, of numbers above 0: each sum adds an
epsilon for each of its terms.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import regard
from regard.attention.arguments import checked_call
from regard.matrix import (
    AttentionMatrix,
    Distance,
    DistanceResult,
    Edges,
    EdgesResult,
    EffectiveKeys,
    EffectiveKeysResult,
    Entropy,
    EntropyResult,
    Hits,
    HitsResult,
    Mass,
    MassResult,
    Offsets,
    OffsetsResult,
    Pool,
    PoolResult,
    Received,
    ReceivedResult,
    Result,
    TopKeys,
    TopKeysResult,
    accumulate,
)
from regard.matrix import tiles as tiling
from regard.patterns import Pattern, causal, everyone, padding, strided, window
from tests.attention.cases import Case, case_of, lse_dtype
from tests.matrix.cases import (
    dense_scores,
    dense_weights,
    matrix_cases,
    matrix_of,
    tiny,
    tolerance,
)

DTYPES = [torch.float32, torch.float64]

COUNT = 2
"""How many keys of a row are asked for."""

LONG = (257, 401)
"""Lengths at which the strongest keys are searched for in groups of 64: above 64 · 2 · COUNT."""

assert min(LONG) > 64 * 2 * COUNT

SHARES = (0.0, 0.1, 0.5, 0.9)
REACH = 3
THRESHOLD = 0.07


@dataclass(frozen=True)
class Known:
    """A matrix written out, or a part of it.

    Attributes:
        weights: [batch, heads, queries, keys] in float64.
        allowed: who may look at whom, of the same shape.
        batch: the indices of the sequences in the whole matrix.
        heads: the indices of its heads.
        queries: the indices of its rows.
        keys: the indices of its columns, which are their positions.
        where: the positions of its rows.
        whole: batch and keys of the whole matrix.
        share: by which share a weight of the matrix that is tested may be off.
        lost: how much of a row or a column is too small for the dtype.
    """

    weights: Tensor
    allowed: Tensor
    batch: Tensor
    heads: Tensor
    queries: Tensor
    keys: Tensor
    where: Tensor
    whole: tuple[int, int]
    share: float
    lost: float

    def part(self, *slices: slice) -> "Known":
        """Return what slices of batch, heads, queries and keys leave over."""
        batch, heads, queries, keys = slices
        return replace(
            self,
            weights=self.weights[slices],
            allowed=self.allowed[slices],
            batch=self.batch[batch],
            heads=self.heads[heads],
            queries=self.queries[queries],
            keys=self.keys[keys],
            where=self.where[queries],
        )

    def test(self, pattern: Pattern) -> Tensor:
        """Say which pairs a pattern allows, [batch, 1, queries, keys]."""
        batch = self.batch[:, None, None, None]
        found = pattern.test(batch, self.where[:, None], self.keys)
        return found.expand(len(batch), 1, len(self.where), len(self.keys))


def known_of(case: Case, sinks: Tensor | None = None) -> Known:
    """Write out the matrix of a case."""
    weights = dense_weights(case, sinks)
    batch, heads, queries, keys = (torch.arange(size) for size in weights.shape)
    call = checked_call(case.query, case.key, case.value, dropout=0.0, **case.options)
    sums = len(queries) + 2 * len(keys)
    eps = torch.finfo(lse_dtype(case.query.dtype)).eps
    smallest = tiny(case.query.dtype)
    return Known(
        weights=weights,
        allowed=dense_scores(case) > -torch.inf,
        batch=batch,
        heads=heads,
        queries=queries,
        keys=keys,
        where=call.query_positions,
        whole=(len(batch), len(keys)),
        share=tolerance(case, case.query.dtype, sinks) + sums * eps,
        # A number below the smallest normal one, times its logarithm, in each place.
        lost=-smallest * log(smallest) * len(keys) * len(queries),
    )


@st.composite
def matrices(draw: st.DrawFn, **options: Any) -> tuple[Case, Tensor | None]:
    """Draw a case in one of the dtypes, and sinks for it or none."""
    return draw(matrix_cases(dtype=draw(st.sampled_from(DTYPES)), **options))


def assert_near(found: Tensor, expected: Tensor, allowance: Tensor | float) -> None:
    """Assert that numbers have a shape, and differ by no more than they may; NaN is NaN."""
    assert found.numel() == expected.numel(), f"{list(found.shape)} is not {list(expected.shape)}"
    found = found.double().reshape(expected.shape)
    assert torch.equal(found.isnan(), expected.isnan())
    off = ((found - expected).abs() > allowance) & ~expected.isnan()
    assert not bool(off.any()), (
        f"{int(off.sum())} of {off.numel()} numbers are off, by up to "
        f"{float((found - expected).abs()[off].max()):.3g}"
    )


def check_entropy(found: EntropyResult, known: Known) -> None:
    """Hold against −Σ w · log w."""
    w = known.weights
    nats = torch.where(w > 0, -w * w.log(), 0.0).sum(dim=3)
    # Where the shift between two chunks of columns is taken off again, 3 · nats are summed.
    assert_near(found.nats, nats, known.share * (3 * nats + 2 * w.sum(dim=3)) + known.lost)
    assert bool((found.nats >= 0).all())


def check_effective_keys(found: EffectiveKeysResult, known: Known) -> None:
    """Hold against the exponential of the entropy of the row that is scaled to a sum of 1."""
    share = known.weights.sum(dim=3, keepdim=True)
    scaled = known.weights / share
    nats = torch.where(scaled > 0, -scaled * scaled.log(), 0.0).sum(dim=3)
    share = share[..., 0]
    count = nats.exp().masked_fill(share == 0.0, 0.0)
    # d log count = d log share + d(entropy / share), where the entropy isn't scaled.
    raw = nats - torch.where(share > 0, share, 1.0).log()
    allowance = count * torch.expm1(known.share * (4 * raw + 4)) + known.share
    # Of rows whose whole share is too small for the dtype, nothing can be said.
    faint = (share > 0.0) & (share * known.share <= known.lost)
    mine = found.count.double().reshape(count.shape)
    assert_near(mine.masked_fill(faint, 0), count.masked_fill(faint, 0), allowance)
    assert bool((mine >= 0).all())


def check_received(found: ReceivedResult, known: Known) -> None:
    """Hold against the mean over the queries that may look."""
    queries = known.allowed.sum(dim=2)
    total = known.weights.sum(dim=2)
    assert torch.equal(found.queries.reshape(queries.shape), queries)
    mean = total / queries
    assert_near(found.mean, mean, known.share * mean.nan_to_num() + known.lost)
    assert_near(found.total, total, 2 * known.share * total + known.lost)


def check_offsets(found: OffsetsResult, known: Known) -> None:
    """Hold against the sums over diagonals."""
    w = known.weights
    offset = known.keys - known.where[:, None]
    rows = len(known.where)
    near = [w.masked_fill(offset != o, 0).sum(dim=(2, 3)) for o in range(-REACH, REACH + 1)]
    total = w.sum(dim=(2, 3)) / rows
    expected = torch.stack(near, dim=-1) / rows
    assert_near(found.near, expected, known.share * expected + known.lost)
    beyond = w.masked_fill(offset.abs() <= REACH, 0).sum(dim=(2, 3)) / rows
    assert_near(found.beyond, beyond, 2 * known.share * total + known.lost)
    first = w.masked_fill(known.keys != 0, 0).sum(dim=(2, 3)) / rows
    assert_near(found.first, first, known.share * first + known.lost)
    assert bool((found.rows == rows).all())
    named = [found.previous, found.itself, found.next]
    for name, one in zip((-1, 0, 1), named, strict=True):
        assert torch.equal(one, found.near[..., REACH + name])


def check_distance(found: DistanceResult, known: Known) -> None:
    """Hold against sums over |key − query|."""
    w = known.weights
    far = (known.keys - known.where[:, None]).abs()
    length = len(found.labels["distances"])
    assert length > int(far.max())
    mass = torch.zeros(*w.shape[:2], length, dtype=torch.float64)
    mass.index_add_(2, far.flatten(), w.flatten(2))
    assert_near(found.mass, mass, known.share * mass + known.lost)
    total = w.sum(dim=(2, 3))
    mean = (w * far).sum(dim=(2, 3)) / total
    faint = (total > 0.0) & (total * known.share <= known.lost)
    mine = found.mean.double().reshape(mean.shape)
    allowance = 3 * known.share * mean.nan_to_num() + known.lost
    assert_near(mine.masked_fill(faint, 0), mean.masked_fill(faint, 0), allowance)
    assert found.labels["shares"] == list(SHARES)
    quantiles = found.quantiles.reshape(*total.shape, -1)
    reported = found.mass.reshape(mass.shape)
    for number, wanted in enumerate(SHARES):
        for one, two in torch.cartesian_prod(*(torch.arange(n) for n in total.shape)).tolist():
            quantile = float(quantiles[one, two, number])
            if total[one, two] == 0.0:
                assert quantile != quantile
                continue
            if faint[one, two]:
                continue
            d = int(quantile)
            assert d == quantile
            # The first distance within which the share lies, as far as rounding lets one say.
            within = mass[one, two].cumsum(dim=0) / total[one, two]
            assert within[d] >= wanted - 3 * known.share
            assert d == 0 or within[d - 1] <= wanted + 3 * known.share
            assert d == 0 or reported[one, two, d] > 0.0


def _cells(weights: Tensor, size: int, how: str) -> Tensor:
    """Write a picture out, cell by cell."""
    height, width = (max(1, -(-n // size)) for n in weights.shape[2:])
    rows = [
        [
            cell.amax(dim=(2, 3)) if how == "max" else cell.mean(dim=(2, 3))
            for left in range(0, weights.shape[3], width)
            for cell in [weights[:, :, top : top + height, left : left + width]]
        ]
        for top in range(0, weights.shape[2], height)
    ]
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)


def check_pool(size: int, how: str) -> Callable[[PoolResult, Known], None]:
    """Return a check of pictures."""

    def check(found: PoolResult, known: Known) -> None:
        expected = _cells(known.weights, size, how)
        assert found.cells.shape[-2:] == expected.shape[-2:]
        assert_near(found.cells, expected, known.share * expected + known.lost)
        assert max(expected.shape[-2:]) <= size
        height, width = (-(-n // size) for n in known.weights.shape[2:])
        assert (found.height, found.width) == (height, width)

    return check


def check_top_keys(found: TopKeysResult, known: Known) -> None:
    """Hold against a sort of each row; keys are indices of the whole matrix."""
    shape = (*known.weights.shape[:3], COUNT)
    keys, weights = found.keys.reshape(shape), found.weights.double().reshape(shape)
    padded = torch.nn.functional.pad(known.weights, (0, COUNT))
    expected = padded.sort(dim=3, descending=True).values[..., :COUNT]
    assert_near(weights, expected, known.share * expected + known.lost)
    assert bool((weights.diff(dim=3) <= 0).all())
    assert torch.equal(keys == -1, weights == 0.0)
    alike = (keys[..., :, None] == keys[..., None, :]) & (keys[..., None] != -1)
    assert torch.equal(alike.sum(dim=(3, 4)), (keys != -1).sum(dim=3))
    # Each key has the weight that is reported with it.
    column = {int(key): number for number, key in enumerate(known.keys)}
    assert set(keys.unique().tolist()) <= {-1, *column}
    columns = torch.tensor([column.get(key, 0) for key in keys.flatten().tolist()]).reshape(shape)
    there = known.weights.gather(3, columns).masked_fill(keys == -1, 0.0)
    assert_near(weights, there, known.share * there + known.lost)


def check_edges(found: EdgesResult, known: Known) -> None:
    """Hold against a list of all pairs; places are indices of the whole matrix."""
    slack = known.share * THRESHOLD
    sure, maybe = (_pairs(known, THRESHOLD + s) for s in (slack, -slack))
    where = [x.tolist() for x in (found.batch, found.heads, found.queries, found.keys)]
    mine = dict(zip(zip(*where, strict=True), found.weights.tolist(), strict=True))
    assert len(mine) == len(found.weights) == found.total
    assert sure.keys() <= mine.keys() <= maybe.keys()
    for place, weight in mine.items():
        assert abs(weight - maybe[place]) <= known.share * maybe[place]
        assert weight >= THRESHOLD - torch.finfo(found.weights.dtype).eps
    assert bool((found.weights.diff() <= 0).all())


def _pairs(known: Known, threshold: float) -> dict[tuple[int, ...], float]:
    places = (known.weights >= threshold).nonzero()
    axes = (known.batch, known.heads, known.queries, known.keys)
    named = torch.stack([axis[places[:, n]] for n, axis in enumerate(axes)], dim=1)
    weights = known.weights[tuple(places.T)]
    return dict(zip(map(tuple, named.tolist()), weights.tolist(), strict=True))


def groups(known: Known) -> dict[str, Tensor | Pattern]:
    """Return groups of keys of each kind."""
    batch, num_keys = known.whole
    key = torch.arange(num_keys)
    return {
        "even": key % 2 == 0,
        "by sequence": (key + torch.arange(batch)[:, None]) % 3 == 0,
        "near": window(2, 1),
        "not padded": padding([(5 * b + 3) % (num_keys + 1) for b in range(batch)]),
    }


def check_mass(found: MassResult, known: Known) -> None:
    """Hold against sums over the members of each group."""
    shares: list[Tensor] = []
    for group in groups(known).values():
        if isinstance(group, Pattern):
            members = known.test(group)
        elif group.dim() == 2:
            members = group[known.batch][:, None, None, known.keys]
        else:
            members = group[known.keys]
        shares.append((known.weights * members).sum(dim=(2, 3)) / len(known.where))
    expected = torch.stack(shares, dim=-1)
    assert found.labels["groups"] == list(groups(known))
    assert_near(found.share, expected, known.share * expected + known.lost)
    assert bool((found.rows == len(known.where)).all())


TARGETS = strided(3) | window(0, 1)


def check_hits(found: HitsResult, known: Known) -> None:
    """Hold against the strongest key of each row, where rounding doesn't decide which it is."""
    targets = known.test(TARGETS) & known.allowed
    rows = targets.any(dim=3)
    top = known.weights.amax(dim=3, keepdim=True)
    leaders = known.weights >= top * (1 - 2 * known.share) - known.lost
    leaders &= known.allowed
    visible = (top > known.lost)[..., 0]
    sure = visible & rows & (targets | ~leaders).all(dim=3)
    possible = rows & (targets & leaders).any(dim=3)
    assert torch.equal(found.rows.reshape(rows.shape[:2]), rows.sum(dim=2))
    hits = found.hits.reshape(rows.shape[:2])
    assert bool((hits >= sure.sum(dim=2)).all())
    assert bool((hits <= possible.sum(dim=2)).all())
    torch.testing.assert_close(found.rate, found.hits / found.rows, equal_nan=True)


CHECKS: dict[str, tuple[Callable[[Known], Any], Callable[[Any, Known], None]]] = {
    "Entropy": (lambda known: Entropy(), check_entropy),
    "EffectiveKeys": (lambda known: EffectiveKeys(), check_effective_keys),
    "Received": (lambda known: Received(), check_received),
    "Offsets": (lambda known: Offsets(REACH), check_offsets),
    "Distance": (lambda known: Distance(SHARES), check_distance),
    "Pool, mean": (lambda known: Pool(11), check_pool(11, "mean")),
    "Pool, max": (lambda known: Pool(11, "max"), check_pool(11, "max")),
    "Pool, two cells": (lambda known: Pool(2), check_pool(2, "mean")),
    "TopKeys": (lambda known: TopKeys(COUNT), check_top_keys),
    "Edges": (lambda known: Edges(THRESHOLD), check_edges),
    "Mass": (lambda known: Mass(groups(known)), check_mass),
    "Hits": (lambda known: Hits(TARGETS), check_hits),
}
"""By name, what makes a reduction for a matrix, and what checks its result."""

fewer = settings(max_examples=max(1, settings.default.max_examples // 3))
"""Each example of these tests is one for all reductions, or is tried with each of them."""

each_reduction = pytest.mark.parametrize("name", CHECKS)


def check_all(matrix: AttentionMatrix, known: Known, **options: Any) -> None:
    """Compute all reductions of a matrix in one pass, and hold them against what is known."""
    reductions = [make(known) for make, _ in CHECKS.values()]
    results = matrix.summarize(*reductions, **options)
    for found, (_, check) in zip(results, CHECKS.values(), strict=True):
        check(found, known)


def check_part(name: str, matrix: AttentionMatrix, known: Known, **options: Any) -> Result:
    """Compute a reduction of a matrix, and hold it against what is known."""
    make, check = CHECKS[name]
    (found,) = matrix.summarize(make(known), **options)
    assert all(x.dtype in (matrix.dtype, torch.int64) for x in found.tensors.values())
    check(found, known)
    return found


@each_reduction
@fewer
@given(drawn=matrices())
def test_a_reduction_is_its_definition(name: str, drawn: tuple[Case, Tensor | None]) -> None:
    check_part(name, matrix_of(*drawn), known_of(*drawn))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", LONG)
@pytest.mark.parametrize("pattern", [everyone(), causal(), window(23) | strided(64)])
def test_long_rows(dtype: torch.dtype, length: int, pattern: Pattern) -> None:
    case = case_of(batch=1, heads=2, queries=67, keys=length, pattern=pattern, dtype=dtype)
    check_all(matrix_of(case), known_of(case))


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


VIEWS: dict[str, tuple[tuple[Any, ...], tuple[slice, ...], tuple[str, ...]]] = {
    "[0, 3]": (
        (0, 3),
        (slice(0, 1), slice(3, 4), slice(None), slice(None)),
        ("queries", "keys"),
    ),
    "[-1, :]": (
        (-1, slice(None)),
        (slice(1, 2), slice(None), slice(None), slice(None)),
        ("heads", "queries", "keys"),
    ),
    "[:, 1:3]": (
        (slice(None), slice(1, 3)),
        (slice(None), slice(1, 3), slice(None), slice(None)),
        ("batch", "heads", "queries", "keys"),
    ),
    "[:, 2]": (
        (slice(None), 2),
        (slice(None), slice(2, 3), slice(None), slice(None)),
        ("batch", "queries", "keys"),
    ),
    "[..., 5:40, :]": (
        (..., slice(5, 40), slice(None)),
        (slice(None), slice(None), slice(5, 40), slice(None)),
        ("batch", "heads", "queries", "keys"),
    ),
    "[..., ::3, 10:50]": (
        (..., slice(None, None, 3), slice(10, 50)),
        (slice(None), slice(None), slice(None, None, 3), slice(10, 50)),
        ("batch", "heads", "queries", "keys"),
    ),
    "[1, ::2, 7:, ::5]": (
        (1, slice(None, None, 2), slice(7, None), slice(None, None, 5)),
        (slice(1, 2), slice(None, None, 2), slice(7, None), slice(None, None, 5)),
        ("heads", "queries", "keys"),
    ),
}


@each_reduction
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("pattern", [causal(), strided(7) | padding([31, 67])])
def test_views(name: str, view: str, pattern: Pattern) -> None:
    case = case_of(heads=2, group=3, queries=61, keys=67, pattern=pattern)
    index, slices, axes = VIEWS[view]
    part, known = matrix_of(case)[index], known_of(case).part(*slices)
    found = check_part(name, part, known)
    own = {axis: getattr(known, axis) for axis in ("batch", "heads", "queries", "keys")}
    for one, values in found.tensors.items():
        names = found.axes(one)
        assert values.shape == tuple(len(found.labels[axis]) for axis in names)
        if names == ("edges",):
            continue
        assert names[: len(axes) - 2] == axes[:-2]
        assert not {"batch", "heads"} & set(names[len(axes) - 2 :])
        for axis in set(names) & set(own):
            assert list(found.labels[axis]) == own[axis].tolist()


@fewer
@given(data=st.data())
def test_any_view(data: st.DataObject) -> None:
    case, sinks = data.draw(matrices(lengths=(7, 37, 67, 131)))
    known = known_of(case, sinks)
    slices: list[slice] = []
    for size in known.weights.shape:
        start = data.draw(st.integers(0, size - 1))
        stop = data.draw(st.integers(start + 1, size))
        slices.append(slice(start, stop, data.draw(st.sampled_from([1, 1, 2, 5]))))
    check_all(matrix_of(case, sinks)[tuple(slices)], known.part(*slices))


def test_cells_of_a_view_are_called_by_the_indices_of_the_matrix() -> None:
    """Rows and columns of cells are called as their first query and key."""
    matrix = matrix_of(case_of(queries=61, keys=67))
    found = matrix[..., 5:40, 10:50:2].pool(7)
    assert list(found.labels["cell_rows"]) == [5, 10, 15, 20, 25, 30, 35]
    assert list(found.labels["cell_columns"]) == [10, 16, 22, 28, 34, 40, 46]


def small_tiles(patch: pytest.MonkeyPatch, rows: int, chunk: int) -> None:
    """Cut matrices into tiles of a few rows, and these into chunks of a few columns."""
    patch.setattr(tiling, "_ROWS", rows)
    patch.setattr(tiling, "_CPU_CHUNK", chunk)


@fewer
@given(
    drawn=matrices(lengths=(31, 67, 131)),
    rows=st.sampled_from([7, 64, 100]),
    chunk=st.sampled_from([499, 64 * 64, 10_007]),
)
def test_tiles_of_any_size(drawn: tuple[Case, Tensor | None], rows: int, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        small_tiles(patch, rows, chunk)
        check_all(matrix_of(*drawn), known_of(*drawn))


@pytest.mark.parametrize("budget", [1, 1009, 100_003, 2**30])
def test_any_budget(budget: int) -> None:
    case = case_of(batch=1, queries=67, pattern=causal() & ~strided(5), dtype=torch.float32)
    check_all(matrix_of(case), known_of(case), budget=budget)


@fewer
@given(drawn=matrices())
def test_a_given_log_sum_exp(drawn: tuple[Case, Tensor | None]) -> None:
    case, sinks = drawn
    _, lse = regard.attend_with_lse(case.query, case.key, case.value, **case.options)
    if sinks is not None:
        lse = torch.logaddexp(lse, sinks[:, None].to(lse.dtype))
    check_all(matrix_of(case, sinks, lse=lse.detach()), known_of(case, sinks))


@fewer
@given(drawn=matrices(lengths=(31, 67, 131)), seed=st.integers(0, 999))
def test_rows_are_dealt_out_and_merged_in_any_way(
    drawn: tuple[Case, Tensor | None], seed: int
) -> None:
    matrix, known = matrix_of(*drawn), known_of(*drawn)
    chance = random.Random(seed)
    reductions = [make(known) for make, _ in CHECKS.values()]
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        small_tiles(patch, 7, 499)
        hands = [[one.start(matrix.view) for one in reductions] for _ in range(4)]
        for tile in tiling.tiles(matrix.view):
            states = chance.choice(hands)
            states[:] = [
                one.update(state, tile) for one, state in zip(reductions, states, strict=True)
            ]
    for number, (one, (_, check)) in enumerate(zip(reductions, CHECKS.values(), strict=True)):
        states = [hand[number] for hand in hands]
        while len(states) > 1:
            chance.shuffle(states)
            states.append(one.merge(states.pop(), states.pop()))
        check(one.finish(states[0]), known)


def two_documents() -> list[tuple[AttentionMatrix, Known]]:
    """Return matrices of different lengths."""
    made = [case_of(queries=n, pattern=causal(), seed=n) for n in (37, 61)]
    return [(matrix_of(case), known_of(case)) for case in made]


def merged_over(
    documents: list[tuple[AttentionMatrix, Known]], make: Callable[[Known], Any]
) -> Any:
    """Return the result of a reduction over all of them."""
    reductions = [make(known) for _, known in documents]
    states = [
        accumulate(matrix.view, [reduction])[0]
        for (matrix, _), reduction in zip(documents, reductions, strict=True)
    ]
    return reductions[0].finish(reductions[0].merge(*states))


def test_offsets_over_documents() -> None:
    documents = two_documents()
    one, two = (matrix.offsets(2) for matrix, _ in documents)
    both = merged_over(documents, lambda known: Offsets(2))
    assert bool((both.rows == 37 + 61).all())
    for name in ("near", "beyond", "first"):
        mean = (37 * getattr(one, name) + 61 * getattr(two, name)) / (37 + 61)
        torch.testing.assert_close(getattr(both, name), mean)


def test_distance_over_documents_of_different_lengths() -> None:
    documents = two_documents()
    one, two = (matrix.distance() for matrix, _ in documents)
    for order in (documents, documents[::-1]):
        both = merged_over(order, lambda known: Distance())
        padded = torch.nn.functional.pad(one.mass, (0, 61 - 37))
        torch.testing.assert_close(both.mass, padded + two.mass)
        # Every row sums up to 1.
        torch.testing.assert_close(both.mean, (37 * one.mean + 61 * two.mean) / (37 + 61))
        within = both.mass.cumsum(dim=-1) / (37 + 61)
        for number, share in enumerate(Distance.shares):
            expected = (within < share).sum(dim=-1)
            assert torch.equal(both.quantiles[..., number].long(), expected)


def test_mass_and_hits_over_documents() -> None:
    documents = two_documents()
    one, two = (matrix.summarize(Mass(groups(known)))[0] for matrix, known in documents)
    both = merged_over(documents, lambda known: Mass(groups(known)))
    assert bool((both.rows == 37 + 61).all())
    torch.testing.assert_close(both.share, (37 * one.share + 61 * two.share) / (37 + 61))

    one, two = (matrix.summarize(Hits(TARGETS))[0] for matrix, _ in documents)
    both = merged_over(documents, lambda known: Hits(TARGETS))
    assert torch.equal(both.hits, one.hits + two.hits)
    assert torch.equal(both.rows, one.rows + two.rows)


@pytest.mark.parametrize("reduction", [Entropy(), EffectiveKeys(), TopKeys(2)])
def test_rows_that_were_seen_twice_are_refused(reduction: Any) -> None:
    matrix = matrix_of(case_of(queries=7))
    (state,) = accumulate(matrix.view, [reduction])
    with pytest.raises(ValueError, match="must have seen different rows of one matrix"):
        reduction.merge(state, state)


@pytest.mark.parametrize(
    "reduction", [Entropy(), EffectiveKeys(), Received(), Pool(100), Pool(100, "max"), TopKeys(2)]
)
def test_states_of_different_sizes_are_refused(reduction: Any) -> None:
    one, two = (accumulate(matrix.view, [reduction])[0] for matrix, _ in two_documents())
    with pytest.raises(ValueError, match=r"must have the same sizes, got .*37.*61"):
        reduction.merge(one, two)


def test_pictures_of_different_sizes_are_refused_though_they_have_as_many_cells() -> None:
    one, two = (accumulate(matrix.view, [Pool(2)])[0] for matrix, _ in two_documents())
    with pytest.raises(ValueError, match="states that are merged must have"):
        Pool(2).merge(one, two)


def test_pictures_of_the_same_rows_are_refused() -> None:
    (state,) = accumulate(matrix_of(case_of(queries=7)).view, [Pool(3)])
    with pytest.raises(ValueError, match="must have seen different rows of one matrix"):
        Pool(3).merge(state, state)


@pytest.mark.parametrize("reduction", [Offsets(2), Distance(), Hits(TARGETS)])
def test_states_of_different_numbers_of_heads_are_refused(reduction: Any) -> None:
    views = [matrix_of(case_of(queries=7, heads=heads)).view for heads in (3, 5)]
    one, two = (accumulate(view, [reduction])[0] for view in views)
    with pytest.raises(ValueError, match=r"must have the same sizes, got .*3.*5"):
        reduction.merge(one, two)


@fewer
@given(drawn=matrices(biased=("none", "alibi", "softcap")))
def test_weights_that_are_written_down(drawn: tuple[Case, Tensor | None]) -> None:
    case, _ = drawn
    known = known_of(*drawn)
    weights = known.weights.to(case.query.dtype)
    matrix = AttentionMatrix.from_weights(weights, pattern=case.pattern, positions=case.where)
    check_all(matrix, known)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Offsets(0), "Offsets: reach must be at least 1, got 0"),
        (lambda: Offsets(-2), "Offsets: reach must be at least 1, got -2"),
        (lambda: Pool(0), "Pool: size must be at least 1, got 0"),
        (lambda: Pool(4, "median"), "Pool: how must be 'mean' or 'max', got 'median'"),  # type: ignore[arg-type]
        (lambda: TopKeys(0), "TopKeys: count must be at least 1, got 0"),
        (lambda: Edges(0.0), "Edges: threshold must be above 0, got 0.0"),
        (lambda: Edges(-0.5), "Edges: threshold must be above 0, got -0.5"),
        (lambda: Edges(torch.nan), "Edges: threshold must be above 0, got nan"),
        (lambda: Edges(0.5, limit=-1), "Edges: limit must be at least 0, got -1"),
        (lambda: Distance((1.5,)), "Distance: shares must lie between 0 and 1, got 1.5"),
        (lambda: Distance((0.5, -0.1)), "Distance: shares must lie between 0 and 1, got -0.1"),
        (lambda: Distance((torch.nan,)), "Distance: shares must lie between 0 and 1, got nan"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_parameters_out_of_range(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        make()
    assert str(caught.value) == message


@pytest.mark.usefixtures("unchecked")
def test_groups_of_the_wrong_kind() -> None:
    rule = "Mass: group 'stops' must be a boolean tensor or a pattern, got "
    with pytest.raises(TypeError) as caught:
        Mass({"stops": torch.ones(7)})
    assert str(caught.value) == rule + "torch.float32"
    with pytest.raises(TypeError) as caught:
        Mass({"stops": [True, False]})  # type: ignore[dict-item]
    assert str(caught.value) == rule + "list"


@pytest.mark.parametrize("shape", [(6,), (2, 6), (3, 7), (1, 7), (2, 3, 7)])
def test_groups_of_the_wrong_length(shape: tuple[int, ...]) -> None:
    matrix = matrix_of(case_of(batch=2, queries=5, keys=7))
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        matrix.summarize(Mass({"stops": torch.ones(shape, dtype=torch.bool)}))
    assert str(caught.value) == (
        f"Mass: group 'stops' must have the shape [7] or [2, 7], got {list(shape)}"
    )


def test_groups_of_a_view_have_the_length_of_the_whole_matrix() -> None:
    matrix = matrix_of(case_of(batch=2, queries=5, keys=7))
    with pytest.raises(ValueError, match=r"must have the shape \[7\] or \[2, 7\], got \[4\]"):
        matrix[..., 3:].summarize(Mass({"stops": torch.ones(4, dtype=torch.bool)}))


@pytest.mark.parametrize("reduction", [Mass({"own": padding([3, 5, 7])}), Hits(padding([3, 5, 7]))])
def test_patterns_of_another_batch_are_refused(reduction: Any) -> None:
    matrix = matrix_of(case_of(batch=2, queries=7))
    with pytest.raises(ValueError, match="3"):
        matrix.summarize(reduction)


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
    assert matrix.offsets(1).near.tolist() == [0.0, 1.0, 0.0]
    assert matrix.distance((0.0, 1.0)).quantiles.tolist() == [0.0, 0.0]
    assert matrix.pool(5).cells.tolist() == [[1.0]]
    top = matrix.top(2)
    assert (top.keys.tolist(), top.weights.tolist()) == ([[0, -1]], [[1.0, 0.0]])


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


def test_all_of_the_mass_lies_within_the_farthest_distance_that_has_some() -> None:
    """A quantile of 1 is where the mass ends, not where the matrix does."""
    for seed in range(20):
        case = case_of(batch=1, heads=5, queries=131, pattern=window(59), seed=seed)
        quantiles = matrix_of(case).distance((1.0,)).quantiles
        assert quantiles.unique().tolist() == [59.0]


def rectangle(height: int, width: int) -> AttentionMatrix:
    """Return a matrix that counts upwards from 0."""
    weights = torch.arange(height * width, dtype=torch.float64).reshape(1, 1, height, width)
    # Whole numbers, which are easy to follow and no weights.
    return AttentionMatrix.from_weights(weights, check=False)[0, 0]


def test_pictures_by_hand() -> None:
    # 0 1 2 3 4 / 5 6 7 8 9 / 10 … 14: cells of 2 × 3 queries and keys, the last ones smaller.
    matrix = rectangle(3, 5)
    mean, largest = matrix.pool(2), matrix.pool(2, "max")
    assert (mean.height, mean.width) == (largest.height, largest.width) == (2, 3)
    assert mean.cells.tolist() == [[3.5, 6.0], [11.0, 13.5]]
    assert largest.cells.tolist() == [[7.0, 9.0], [12.0, 14.0]]
    assert (list(mean.labels["cell_rows"]), list(mean.labels["cell_columns"])) == ([0, 2], [0, 3])


def test_pictures_have_no_more_cells_than_it_takes() -> None:
    # Seven rows in up to four cells are cells of two; nine in up to four would be cells of three.
    found = rectangle(7, 9).pool(4)
    assert (found.height, found.width, found.cells.shape) == (2, 3, (4, 3))


def test_one_cell() -> None:
    assert rectangle(3, 5).pool(1).cells.tolist() == [[7.0]]
    assert rectangle(3, 5).pool(1, "max").cells.tolist() == [[14.0]]


@pytest.mark.parametrize("how", ["mean", "max"])
@pytest.mark.parametrize("size", [13, 17, 1009])
def test_a_picture_larger_than_the_matrix_is_the_matrix(how: Any, size: int) -> None:
    case = case_of(queries=11, keys=13, pattern=window(5))
    known, found = known_of(case), matrix_of(case).pool(size, how)
    assert_near(found.cells, known.weights, known.share * known.weights)
    assert found.cells.shape == known.weights.shape
    assert (found.height, found.width) == (1, 1)


@pytest.mark.parametrize("how", ["mean", "max"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("pattern", [causal(), window(3) | padding([32])])
def test_cells_of_whole_groups_of_rows(how: Any, size: int, pattern: Pattern) -> None:
    """Cells whose height is a multiple of 64 are made of sums that are known already."""
    case = case_of(batch=1, heads=2, queries=320, pattern=pattern)
    for rows in (64, 100, 512):
        with pytest.MonkeyPatch.context() as patch:
            small_tiles(patch, rows, 4096)
            known = known_of(case)
            check_pool(size, how)(matrix_of(case).pool(size, how), known)


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
