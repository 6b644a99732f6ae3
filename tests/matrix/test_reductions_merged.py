"""Reductions that are computed in pieces, and merged: of one matrix, or over documents."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.matrix import (
    AttentionMatrix,
    Distance,
    Edges,
    EffectiveKeys,
    Entropy,
    Hits,
    Mass,
    Offsets,
    Pool,
    Received,
    TopKeys,
    accumulate,
)
from regard.matrix import tiles as tiling
from regard.patterns import causal, strided
from tests.attention.cases import Case, case_of
from tests.matrix.cases import matrix_of
from tests.matrix.definitions import CHECKS, TARGETS, check_all, groups, small_tiles
from tests.matrix.known import Known, known_of, matrices
from tests.strategies import fewer


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


ROWS = [Entropy(), EffectiveKeys(), Pool(100), Pool(100, "max"), TopKeys(2), Edges(0.01)]
"""Reductions in which each row has a place."""


@pytest.mark.parametrize("reduction", [*ROWS, Received(), Offsets(2), Distance(), Hits(TARGETS)])
def test_states_of_other_heads_are_refused(reduction: Any) -> None:
    matrix = matrix_of(case_of(queries=7, heads=4))
    for one, two in ((matrix[:, :2], matrix[:, 2:]), (matrix[0, 1], matrix[0, 2])):
        states = [accumulate(part.view, [reduction])[0] for part in (one, two)]
        with pytest.raises(ValueError, match=r"must be of the same heads, got . in one and . in"):
            reduction.merge(*states)


@pytest.mark.parametrize("reduction", [*ROWS, Received()])
def test_states_of_other_keys_are_refused(reduction: Any) -> None:
    matrix = matrix_of(case_of(queries=8))
    for one, two in ((slice(4), slice(4, 8)), (slice(None, None, 2), slice(4))):
        states = [accumulate(matrix[..., keys].view, [reduction])[0] for keys in (one, two)]
        with pytest.raises(ValueError, match=r"must be of the same keys, got . in one and . in"):
            reduction.merge(*states)


@pytest.mark.parametrize("reduction", ROWS)
def test_states_of_other_rows_or_sequences_are_refused(reduction: Any) -> None:
    matrix = matrix_of(case_of(queries=8))
    for one, two, axis in (
        (matrix[:, :, :4], matrix[:, :, 4:], "queries"),
        (matrix[0], matrix[1], "batch"),
    ):
        states = [accumulate(part.view, [reduction])[0] for part in (one, two)]
        with pytest.raises(ValueError, match=f"must be of the same {axis}, got . in one and . in"):
            reduction.merge(*states)


def test_sequences_of_one_batch_are_documents() -> None:
    matrix = matrix_of(case_of(queries=7))
    one, two = (accumulate(matrix[number].view, [Received()])[0] for number in range(2))
    both = Received().finish(Received().merge(one, two))
    torch.testing.assert_close(both.mean, matrix.received().mean.mean(dim=0))
    one, two = (accumulate(matrix[n : n + 1].view, [Received()])[0] for n in range(2))
    with pytest.raises(ValueError, match="must be of the same batch, got 0 in one and 1 in"):
        Received().merge(one, two)
