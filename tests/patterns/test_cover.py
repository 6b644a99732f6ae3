"""What `cover` says of a rectangle, against its pairs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.patterns import Cover, causal, documents, neighbours, padding
from regard.patterns.from_mask import FromMask
from regard.patterns.global_at import GlobalAt
from regard.patterns.neighbours import Neighbours
from regard.patterns.padding import Padding
from regard.patterns.pairs import Pairs
from regard.patterns.pattern import Everyone, Span
from regard.patterns.regular import Causal, Columns, Prefix, Strided, Window
from tests.strategies import document_ids, leaves, patterns

BATCHES = st.sampled_from([None, 1, 3])


def true_cover(allowed: torch.Tensor) -> Cover:
    return Cover.ALL if allowed.all() else Cover.SOME if allowed.any() else Cover.NONE


def is_right(said: Cover, truth: Cover) -> bool:
    return said in (truth, Cover.SOME)


@st.composite
def ranges(draw: st.DrawFn, num_positions: int) -> range:
    ends = st.integers(0, num_positions - 1)
    low, high = sorted([draw(ends), draw(ends)])
    return range(low, high + 1)


@given(st.integers(1, 150), BATCHES, st.data())
def test_none_and_all_are_certain(
    num_positions: int, batch: int | None, data: st.DataObject
) -> None:
    pattern = data.draw(patterns(num_positions, batch))
    for _ in range(5):
        queries, keys = data.draw(ranges(num_positions)), data.draw(ranges(num_positions))
        truth = true_cover(pattern.allows(queries, keys))
        assert is_right(pattern.cover(queries, keys), truth)


@given(st.integers(1, 150), BATCHES, st.data())
def test_many_rectangles_at_once(
    num_positions: int, batch: int | None, data: st.DataObject
) -> None:
    pattern = data.draw(patterns(num_positions, batch))
    sequences = st.integers(0, (batch or 1) - 1)
    rectangle = st.tuples(sequences, ranges(num_positions), ranges(num_positions))
    chosen = data.draw(st.lists(rectangle, min_size=1, max_size=12))
    numbers = torch.tensor([[b, q[0], q[-1], k[0], k[-1]] for b, q, k in chosen]).unbind(1)
    said = pattern.cover_spans(numbers[0], Span(*numbers[1:3]), Span(*numbers[3:]))
    assert said.shape == (len(chosen),)
    assert said.dtype == torch.int8
    for code, (b, queries, keys) in zip(said.tolist(), chosen, strict=True):
        allowed = pattern.allows(queries, keys)
        truth = true_cover(allowed[b] if pattern.batch_size else allowed)
        assert is_right(Cover(code), truth)


@given(st.integers(1, 80), BATCHES, st.data())
def test_rectangles_broadcast(num_positions: int, batch: int | None, data: st.DataObject) -> None:
    pattern = data.draw(patterns(num_positions, batch))
    queries, keys = (
        [data.draw(ranges(num_positions)) for _ in range(count)] for count in (2, 5)
    )  # fmt: skip
    query, key = (
        Span(torch.tensor([one[0] for one in some]), torch.tensor([one[-1] for one in some]))
        for some in (queries, keys)
    )
    query = Span(query.first[:, None], query.last[:, None])
    sequences = torch.arange(batch or 1)[:, None, None]
    said = pattern.cover_spans(sequences, query, key)
    shape = (len(sequences), len(queries), len(keys))
    # Where nothing depends on the sequence, the axis may be left at 1.
    assert torch.broadcast_shapes(said.shape, shape) == shape
    said = said.expand(shape)
    for i, some_queries in enumerate(queries):
        for j, some_keys in enumerate(keys):
            allowed = pattern.allows(some_queries, some_keys)
            for b in range(len(sequences)):
                truth = true_cover(allowed[b] if pattern.batch_size else allowed)
                assert is_right(Cover(int(said[b, i, j])), truth)


@given(st.integers(1, 60), st.data())
def test_queries_may_stand_outside_of_the_keys(num_positions: int, data: st.DataObject) -> None:
    pattern = data.draw(patterns(num_positions, 3, anywhere=True))
    ends = st.integers(-20, num_positions + 20)
    low, high = sorted([data.draw(ends), data.draw(ends)])
    queries, keys = range(low, high + 1), data.draw(ranges(num_positions))
    assert is_right(pattern.cover(queries, keys), true_cover(pattern.allows(queries, keys)))


@given(st.integers(1, 40), BATCHES, st.booleans(), st.data())
def test_leaves_that_know_the_whole_truth(
    num_positions: int, batch: int | None, negated: bool, data: st.DataObject
) -> None:
    kinds = (Everyone, Causal, Window, Strided, Columns, Prefix, GlobalAt, Pairs, Padding, FromMask)
    leaf = data.draw(leaves(num_positions, batch).filter(lambda leaf: isinstance(leaf, kinds)))
    pattern = ~leaf if negated else leaf
    for _ in range(5):
        queries, keys = data.draw(ranges(num_positions)), data.draw(ranges(num_positions))
        assert pattern.cover(queries, keys) == true_cover(pattern.allows(queries, keys))


@given(st.integers(1, 40), st.data())
def test_of_documents_in_ascending_order_the_whole_truth_is_known(
    num_positions: int, data: st.DataObject
) -> None:
    pattern = documents(data.draw(document_ids(num_positions)).sort().values)
    for _ in range(5):
        queries, keys = data.draw(ranges(num_positions)), data.draw(ranges(num_positions))
        assert pattern.cover(queries, keys) == true_cover(pattern.allows(queries, keys))


@given(st.integers(1, 60), BATCHES, st.data())
def test_single_pairs_are_known(num_positions: int, batch: int | None, data: st.DataObject) -> None:
    # Of a row of a graph, `cover` knows where it begins and ends, not what it leaves out.
    known = leaves(num_positions, batch).filter(lambda leaf: not isinstance(leaf, Neighbours))
    pattern = data.draw(known)
    i, j = (data.draw(st.integers(0, num_positions - 1)) for _ in range(2))
    queries, keys = range(i, i + 1), range(j, j + 1)
    assert pattern.cover(queries, keys) == true_cover(pattern.allows(queries, keys))


def test_a_graph_knows_what_lies_beside_its_edges() -> None:
    pattern = neighbours([(2, 3), (2, 4), (3, 3), (3, 4), (5, 0)])
    assert pattern.cover(range(2, 4), range(3, 5)) is Cover.ALL
    assert pattern.cover(range(2, 4), range(3)) is Cover.NONE
    assert pattern.cover(range(2, 4), range(5, 9)) is Cover.NONE
    assert pattern.cover(range(4, 5), range(9)) is Cover.NONE
    assert pattern.cover(range(6, 9), range(9)) is Cover.NONE
    assert pattern.cover(range(2, 5), range(3, 5)) is Cover.SOME


@pytest.mark.parametrize(
    ("queries", "keys", "expected"),
    [
        (range(4), range(4, 8), Cover.NONE),
        (range(4), range(3, 8), Cover.SOME),
        (range(4, 8), range(5), Cover.ALL),
        (range(4, 8), range(6), Cover.SOME),
    ],
)
def test_the_corner_decides_for_causal(queries: range, keys: range, expected: Cover) -> None:
    assert causal().cover(queries, keys) is expected


def test_sequences_that_differ_make_some() -> None:
    assert padding([0, 8]).cover(range(3), range(8)) is Cover.SOME
    assert padding([8, 9]).cover(range(3), range(8)) is Cover.ALL
    assert padding([2, 3]).cover(range(3), range(3, 8)) is Cover.NONE


def test_padding_knows_both_of_its_ends() -> None:
    left, inner = padding(starts=[2, 3]), padding([3, 3], starts=[2, 3])
    for pattern in (left, inner):
        assert pattern.cover(range(9), range(2)) is Cover.NONE
        assert pattern.cover(range(9), range(2, 5)) is Cover.SOME
        assert pattern.cover(range(9), range(3, 5)) is Cover.ALL
    assert left.cover(range(9), range(3, 1000)) is Cover.ALL
    assert inner.cover(range(9), range(3, 6)) is Cover.SOME
    assert inner.cover(range(9), range(6, 9)) is Cover.NONE
    # A sequence without tokens hides all, wherever it is said to start.
    assert padding([0], starts=[4]).cover(range(9), range(9)) is Cover.NONE
