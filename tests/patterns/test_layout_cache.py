"""What is remembered of a pattern, and how long."""

import gc
import weakref
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.patterns import Pattern, causal, documents, window
from regard.patterns.layout import consecutive_layout
from regard.patterns.layout_cache import cached
from tests.strategies import patterns


@given(st.integers(1, 80), st.integers(0, 30), st.integers(1, 40), st.data())
def test_a_layout_is_made_once(
    num_queries: int, first: int, block: int, data: st.DataObject
) -> None:
    num_keys = first + num_queries
    pattern = data.draw(patterns(num_keys))
    found = consecutive_layout(pattern, first, num_queries, num_keys, block)
    assert torch.equal(found.query_positions, torch.arange(first, num_keys))
    assert consecutive_layout(pattern, first, num_queries, num_keys, block) is found


def test_other_arguments_make_other_layouts() -> None:
    pattern = causal() & window(before=5)
    arguments = [(3, 7, 10, 4), (2, 7, 10, 4), (3, 6, 10, 4), (3, 7, 11, 4), (3, 7, 10, 5)]
    layouts = [consecutive_layout(pattern, *some) for some in arguments]
    assert len({id(layout) for layout in layouts}) == len(arguments)


def test_other_patterns_make_other_layouts() -> None:
    layouts = [consecutive_layout(window(before=before), 3, 7, 10, 4) for before in (2, 3)]
    assert layouts[0] is not layouts[1]


def test_equal_patterns_share_a_layout() -> None:
    layouts = [consecutive_layout(causal() & window(before=5), 3, 7, 10, 4) for _ in range(2)]
    assert layouts[0] is layouts[1]


def test_patterns_with_tensors_share_nothing() -> None:
    layouts = [consecutive_layout(documents([0, 0, 1]), 0, 3, 3, 4) for _ in range(2)]
    assert layouts[0] is not layouts[1]


def test_what_was_made_from_a_pattern_with_tensors_goes_with_it() -> None:
    pattern = causal() & documents([0, 0, 1])
    made = weakref.ref(consecutive_layout(pattern, 0, 3, 3, 4))
    assert made() is not None
    del pattern
    gc.collect()
    assert made() is None


def test_the_latest_are_kept() -> None:
    pattern, made = window(before=11), []

    def ask(number: int) -> int:
        return cached(pattern, ("number", number), lambda: made.append(number) or number)

    for number in range(70):
        assert ask(number) == number
    made.clear()
    assert [ask(69), ask(6), ask(69), ask(0)] == [69, 6, 69, 0]
    assert made == [0]
    assert ask(6) == 6
    assert made == [0]


def test_an_error_is_not_remembered() -> None:
    calls = []

    def fail() -> None:
        calls.append(1)
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            cached(causal(), "fails", fail)
    assert len(calls) == 2


def test_a_pattern_with_tensors_forgets_too() -> None:
    pattern = documents([0] * 100)
    first = consecutive_layout(pattern, 0, 1, 100, 64)
    for num_queries in range(2, 100):
        consecutive_layout(pattern, 0, num_queries, 100, 64)
    assert len(vars(pattern)["_made"]) == 64
    assert consecutive_layout(pattern, 0, 1, 100, 64) is not first


def test_a_pattern_that_has_no_hash_is_remembered_by_itself() -> None:
    @dataclass
    class Even(Pattern):
        def test(self, batch, query, key):
            return key % 2 == query % 2

    pattern = Even()
    assert consecutive_layout(pattern, 0, 3, 3, 4) is consecutive_layout(pattern, 0, 3, 3, 4)


@pytest.mark.parametrize("combined", [False, True])
def test_a_pattern_that_was_used_cannot_be_changed(combined: bool) -> None:
    class Near(Pattern):
        def __init__(self, reach: int) -> None:
            self.reach = reach

        def test(self, batch, query, key):
            return (query - key).abs() <= self.reach

    near = Near(3)
    near.reach = 2
    consecutive_layout(causal() & near if combined else near, 0, 9, 9, 4)
    rule = r"^a pattern is immutable once used, got reach = 5: make a new one$"
    with pytest.raises(AttributeError, match=rule):
        near.reach = 5
    assert near.reach == 2
