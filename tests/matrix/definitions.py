"""Each reduction's definition, written out over the whole matrix in float64.

The allowances derive from the share by which a weight may be off: see `tests.matrix.cases`.
What is made of weights are sums over rows or columns, or both, of numbers above 0: each sum adds an
epsilon for each of its terms.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

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
    tile_plan,
)
from regard.patterns import Pattern, padding, strided, window
from tests.matrix.known import Known, assert_near

COUNT = 2
"""How many keys of a row are asked for."""

SHARES = (0.0, 0.1, 0.5, 0.9)
REACH = 3
THRESHOLD = 0.07


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


def small_tiles(patch: pytest.MonkeyPatch, rows: int, chunk: int) -> None:
    """Cut matrices into tiles of a few rows, and these into chunks of a few columns."""
    patch.setattr(tile_plan, "GEMM_ROWS", rows)
    patch.setattr(tile_plan, "CPU_CHUNK", chunk)
