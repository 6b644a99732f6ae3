import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.patterns import causal, layout, window
from regard.patterns.layout import Strip, StripRows


@st.composite
def rows(draw: st.DrawFn) -> StripRows:
    """Draw rows at equal distance, or such that are listed."""
    starts = torch.tensor(draw(st.lists(st.integers(0, 50), min_size=1, max_size=6)))
    count = draw(st.integers(1, 9))
    if draw(st.booleans()):
        return StripRows.stepped(starts, draw(st.integers(1, 5)), count)
    numbers = st.lists(st.integers(0, 50), min_size=count, max_size=count)
    table = draw(st.lists(numbers, min_size=len(starts), max_size=len(starts)))
    return StripRows.listed(torch.tensor(table))


@given(rows(), st.data())
def test_part(some: StripRows, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, some.count - 1))
    count = data.draw(st.integers(1, some.count - first))
    part = some.part(first, count)
    assert part.count == count
    assert torch.equal(part.index(), some.index()[:, first : first + count])


@given(rows(), st.data())
def test_slice(some: StripRows, data: st.DataObject) -> None:
    ends = st.integers(0, len(some.start))
    low, high = sorted([data.draw(ends), data.draw(ends)])
    part = some[low:high]
    assert len(part.start) == high - low
    assert torch.equal(part.index(), some.index()[low:high])
    assert part.pitch is None or (part.start.diff() == part.pitch).all()


def test_steady_starts_have_a_pitch() -> None:
    assert StripRows.stepped(torch.tensor([3, 7, 11]), 2, 5).pitch == 4
    assert StripRows.stepped(torch.tensor([3, 3]), 2, 5).pitch == 0
    assert StripRows.stepped(torch.tensor([3]), 2, 5).pitch == 0


def test_other_starts_have_none() -> None:
    assert StripRows.stepped(torch.tensor([3, 7, 12]), 2, 5).pitch is None
    # A tensor can't be viewed backwards.
    assert StripRows.stepped(torch.tensor([11, 7, 3]), 2, 5).pitch is None
    assert StripRows.listed(torch.tensor([[1, 2], [3, 4]])).pitch is None


def test_pairs_of_a_strip() -> None:
    queries, keys = (StripRows.stepped(torch.tensor([0, 7, 14]), 1, count) for count in (5, 11))
    strip = Strip(None, queries, keys, mask=None, pattern=None, fresh=True)
    assert strip.num_rectangles == 3
    assert strip.num_pairs == 3 * 5 * 11
    assert strip[1:].num_pairs == 2 * 5 * 11


def test_some_queries_of_a_strip() -> None:
    found = layout(causal() & window(before=40), torch.arange(200), 200, block=48)
    for strip in found.strips:
        assert strip.mask is not None
        for first in range(0, strip.queries.count, 7):
            some = strip.of_queries(first, 7)
            stop = min(first + 7, strip.queries.count)
            assert torch.equal(some.queries.index(), strip.queries.index()[:, first:stop])
            assert torch.equal(some.keys.index(), strip.keys.index())
            assert torch.equal(some.mask, strip.mask[:, first:stop])
