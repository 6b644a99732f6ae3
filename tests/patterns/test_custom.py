"""A pattern of one's own needs `test` and nothing else."""

from dataclasses import dataclass
from importlib import import_module

import pytest
import torch
from torch import Tensor

from regard.patterns import Cover, Pattern, causal, columns, layout, padding, window
from regard.patterns.pattern import Span, codes


class Parity(Pattern):
    """Even positions attend to odd ones, and the other way round."""

    def test(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query + key) % 2 == 1


@dataclass(frozen=True)
class Diagonal(Pattern):
    """Each position attends to the one at a distance before it."""

    distance: int
    relative = True

    def test(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return query - key == self.distance


class KeysOnly(Pattern):
    """A `test` that ignores queries, and so has no axis for them."""

    def test(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return key % 3 != 1


@dataclass(frozen=True)
class UpTo(Pattern):
    """Each position attends up to a distance, one for each sequence."""

    numbers: tuple[int, ...]

    @property
    def batch_size(self) -> int:
        return len(self.numbers)

    def test(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query - key).abs() <= torch.tensor(self.numbers)[batch]


class Covered(Parity):
    """Count how often it is asked for a cover, and know when there is nothing to see."""

    def __init__(self) -> None:
        self.asked = 0

    def cover_spans(self, batch: Tensor, query: Span, key: Span) -> Tensor:
        self.asked += 1
        one = (query.first == query.last) & (key.first == key.last)
        odd = (query.first + key.first) % 2 == 1
        return codes(none=one & ~odd, every=one & odd, batch=batch)


OWN = [Parity(), Diagonal(5), KeysOnly(), UpTo((0, 7)), Covered()]
COMBINED = [
    *OWN,
    *(~own for own in OWN),
    *(causal() & own for own in OWN),
    *(own | (columns(every=4) & window(before=20)) for own in OWN),
    Parity() & Diagonal(5),
    Parity() & padding([9, 70]),
]


def name(value: object) -> str:
    return type(value).__name__


def truth(pattern: Pattern, queries: list[int], num_keys: int) -> Tensor:
    """Ask for one pair after the other."""
    return torch.tensor([
        [
            [
                bool(pattern.test(torch.tensor(b), torch.tensor(i), torch.tensor(j)))
                for j in range(num_keys)
            ]
            for i in queries
        ]
        for b in range(pattern.batch_size or 1)
    ])  # fmt: skip


@pytest.mark.parametrize("pattern", COMBINED, ids=name)
def test_allows(pattern: Pattern) -> None:
    queries = [5, 3, 3, 12]
    allowed = pattern.allows(queries, range(13))
    assert allowed.dim() == (2 if pattern.batch_size is None else 3)
    assert torch.equal(allowed.expand(pattern.batch_size or 1, 4, 13), truth(pattern, queries, 13))


@pytest.mark.parametrize("pattern", OWN, ids=name)
def test_cover_is_some_unless_something_is_known(pattern: Pattern) -> None:
    assert pattern.cover(range(3, 5), range(7)) is Cover.SOME


def test_cover_of_combinations() -> None:
    assert (causal() & Parity()).cover(range(5), range(5, 9)) is Cover.NONE
    assert (causal() | Parity()).cover(range(5, 9), range(5)) is Cover.ALL
    assert (causal() & Parity()).cover(range(5, 9), range(5)) is Cover.SOME
    assert Covered().cover(range(5, 6), range(6, 7)) is Cover.ALL
    assert Covered().cover(range(5, 6), range(7, 8)) is Cover.NONE


@pytest.mark.parametrize("pattern", COMBINED, ids=name)
@pytest.mark.parametrize("positions", [range(70), range(31, 70), [69, 3, 3, 44, 0]])
def test_layout(pattern: Pattern, positions: range | list[int]) -> None:
    queries = torch.tensor(positions)
    shape = (pattern.batch_size or 1, len(queries), 70)
    count = torch.zeros(shape, dtype=torch.long)
    for strip in layout(pattern, queries, 70, block=16).strips:
        rows, keys = strip.queries.index()[:, :, None], strip.keys.index()[:, None, :]
        allowed = torch.ones(strip.num_rectangles, strip.queries.count, strip.keys.count).bool()
        if strip.mask is not None:
            allowed &= strip.mask
        if strip.pattern is not None:
            allowed &= strip.pattern.test(torch.tensor(strip.batch or 0), queries[rows], keys)
        for b in range(shape[0]) if strip.batch is None else [strip.batch]:
            count[b].index_put_((rows, keys), allowed.long(), accumulate=True)
    assert torch.equal(count, pattern.allows(queries, range(70)).expand(shape).long())


def test_a_layout_asks_for_cover_and_not_for_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = Covered()
    pattern.test = None  # type: ignore[assignment]
    monkeypatch.setattr(import_module("regard.patterns.layout"), "WRITTEN_PAIRS", 0)
    assert layout(pattern, torch.arange(70), 70, block=16).num_pairs == 70 * 70
    assert pattern.asked > 0


def test_what_is_relative_shares_a_mask() -> None:
    strips = layout(window(before=20) & Diagonal(5), torch.arange(640), 640, block=32).strips
    assert max(strip.num_rectangles for strip in strips if strip.mask is not None) >= 18


def test_leaves_are_the_pattern_itself() -> None:
    pattern = Parity()
    assert list(pattern.leaves()) == [pattern]
    assert list((causal() & ~(pattern | window(before=3))).leaves()) == [
        causal(),
        pattern,
        window(before=3),
    ]


def test_everything_fits_what_does_not_check() -> None:
    Parity().check(5, range(-3, 100), 7)
