"""The laws of patterns that are combined."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.patterns import Pattern, causal, everyone, padding, prefix
from regard.patterns.pattern import as_span
from tests.strategies import patterns, query_positions

SIZES = st.integers(1, 40)
BATCHES = st.sampled_from([None, 1, 3])


def mask(pattern: Pattern, num_positions: int, batch: int | None) -> torch.Tensor:
    """Return which pairs are allowed, with a batch axis in any case."""
    allowed = pattern.allows(range(num_positions), range(num_positions))
    return allowed.expand(batch or 1, num_positions, num_positions)


@given(SIZES, BATCHES, st.data())
def test_combinations_are_elementwise_logic(
    num_positions: int, batch: int | None, data: st.DataObject
) -> None:
    a, b = (data.draw(patterns(num_positions, batch, depth=2)) for _ in range(2))
    first, second = (mask(pattern, num_positions, batch) for pattern in (a, b))
    assert torch.equal(mask(a & b, num_positions, batch), first & second)
    assert torch.equal(mask(a | b, num_positions, batch), first | second)
    assert torch.equal(mask(~a, num_positions, batch), ~first)


@given(SIZES, BATCHES, st.data())
def test_laws(num_positions: int, batch: int | None, data: st.DataObject) -> None:
    a, b, c = (data.draw(patterns(num_positions, batch, depth=1)) for _ in range(3))
    nobody = ~everyone()
    for left, right in [
        (~(a & b), ~a | ~b),
        (~(a | b), ~a & ~b),
        (~~a, a),
        (a & b, b & a),
        (a | b, b | a),
        (a & (b | c), a & b | a & c),
        (a | b & c, (a | b) & (a | c)),
        (a & (a | b), a),
        (a | ~a, everyone()),
        (a & ~a, nobody),
        (a & everyone(), a),
        (a | nobody, a),
    ]:
        assert torch.equal(mask(left, num_positions, batch), mask(right, num_positions, batch)), (
            f"{left} differs from {right}"
        )


@given(SIZES, BATCHES, st.data())
def test_a_combination_has_a_batch_axis_if_a_member_has(
    num_positions: int, batch: int | None, data: st.DataObject
) -> None:
    a, b = (data.draw(patterns(num_positions, batch, depth=1)) for _ in range(2))
    sizes = {a.batch_size, b.batch_size} - {None}
    assert sizes <= {batch}
    expected = [*sizes, num_positions, 2]
    for pattern in (a & b, a | b, b & ~a):
        assert pattern.batch_size == (batch if sizes else None)
        assert list(pattern.allows(range(num_positions), [0, 0]).shape) == expected


@given(st.integers(1, 80), BATCHES, st.data())
def test_within_agrees_on_the_rectangle(
    num_positions: int, batch: int | None, data: st.DataObject
) -> None:
    pattern = data.draw(patterns(num_positions, batch))
    ends = st.integers(0, num_positions - 1)
    queries, keys = (range(low, high + 1) for low, high in (
        sorted([data.draw(ends), data.draw(ends)]) for _ in range(2)
    ))  # fmt: skip
    sequences = torch.arange(pattern.batch_size or 1)
    simpler = pattern.within(sequences, as_span(queries), as_span(keys))
    assert len(list(simpler.leaves())) <= len(list(pattern.leaves()))
    shape = (len(sequences), len(queries), len(keys))
    assert torch.equal(
        simpler.allows(queries, keys).expand(shape), pattern.allows(queries, keys).expand(shape)
    )


@given(st.integers(1, 80), BATCHES, st.data())
def test_simplified_agrees_with_the_pattern(
    num_positions: int, batch: int | None, data: st.DataObject
) -> None:
    pattern = data.draw(patterns(num_positions, batch))
    first = data.draw(st.integers(0, num_positions - 1))
    queries, keys = range(first, num_positions), range(num_positions)
    simpler = pattern.simplified(queries, num_positions)
    shape = (batch or 1, len(queries), len(keys))
    assert torch.equal(
        simpler.allows(queries, keys).expand(shape), pattern.allows(queries, keys).expand(shape)
    )


def test_members_that_make_no_difference_are_simplified_away() -> None:
    assert (causal() & padding([5, 5])).simplified(range(5), 5) == causal()
    assert (causal() | prefix(0)).simplified(range(5), 5) == causal()
    assert causal().simplified(range(4, 5), 5) == everyone()
    assert (causal() & prefix(7)).simplified(range(6, 7), 7) == everyone()


@given(SIZES, BATCHES, st.data())
def test_what_says_to_be_relative_depends_on_the_distance_alone(
    num_positions: int, batch: int | None, data: st.DataObject
) -> None:
    pattern = data.draw(patterns(num_positions, batch))
    if pattern.relative:
        allowed = mask(pattern, num_positions, batch)
        for offset in range(1 - num_positions, num_positions):
            diagonal = allowed.diagonal(offset, dim1=1, dim2=2)
            assert diagonal.all() or not diagonal.any()


@given(st.integers(1, 60), st.sampled_from([None, 3]), st.booleans(), st.data())
def test_a_dense_mask_is_what_the_pattern_says_of_each_pair(
    num_keys: int, batch: int | None, anywhere: bool, data: st.DataObject
) -> None:
    pattern = data.draw(patterns(num_keys, batch, anywhere=anywhere))
    positions = data.draw(query_positions(num_keys, anywhere=anywhere))
    sequences = torch.arange(batch or 1)[:, None, None]
    expected = pattern.test(sequences, positions[:, None], torch.arange(num_keys))
    found = pattern.dense(positions, num_keys)
    assert torch.equal(*torch.broadcast_tensors(found, expected))
    assert found.shape == (pattern.batch_size or 1, len(positions), num_keys)
