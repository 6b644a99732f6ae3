import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.patterns.integers import RangeExtrema

VALUES = st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=1, max_size=70)


@given(VALUES, st.data())
def test_extremes_of_any_span(values: list[tuple[int, int]], data: st.DataObject) -> None:
    smallest, largest = zip(*values, strict=True)
    ends = st.integers(0, len(values) - 1)
    spans = data.draw(st.lists(st.tuples(ends, ends).map(sorted), min_size=1, max_size=20))
    first, last = torch.tensor(spans).unbind(1)
    low, high = RangeExtrema(torch.tensor(smallest), torch.tensor(largest))(first, last)
    assert low.tolist() == [min(smallest[a : b + 1]) for a, b in spans]
    assert high.tolist() == [max(largest[a : b + 1]) for a, b in spans]


def test_every_span_of_every_length() -> None:
    for length in range(1, 18):
        values = torch.randperm(length, generator=torch.Generator().manual_seed(length))
        extremes = RangeExtrema(values, values)
        first, last = torch.triu_indices(length, length)
        low, high = extremes(first, last)
        spans = [values[a : b + 1].tolist() for a, b in zip(first, last, strict=True)]
        assert low.tolist() == [min(span) for span in spans]
        assert high.tolist() == [max(span) for span in spans]


def test_spans_keep_their_shape() -> None:
    extremes = RangeExtrema(torch.arange(7), torch.arange(7))
    low, high = extremes(torch.tensor([[0, 1, 2]]), torch.tensor([[6, 5, 4]]))
    assert low.tolist() == [[0, 1, 2]]
    assert high.tolist() == [[6, 5, 4]]
