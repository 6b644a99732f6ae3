"""A set of queries × a set of keys."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from jaxtyping import Int
from torch import Tensor

from regard.patterns.integers import is_consecutive, to_list, whole_numbers
from regard.patterns.pattern import Bools, Covers, GatheredBlocks, Ints, Pattern, Span, codes

Positions = int | slice | range | Sequence[int] | Int[Tensor, "chosen"]
"""A position, a span of positions, or a list of them."""

_END = 2**62
"""Where a span ends that has no end; it begins as far below 0 if it has no start."""


@dataclass(frozen=True)
class PositionSet:
    """A set of positions: runs of neighbours, ascending, that do not touch.

    Attributes:
        spans: first position of each run, and the one behind its last.
    """

    spans: tuple[tuple[int, int], ...]
    _starts: Tensor = field(init=False, repr=False, compare=False)
    _stops: Tensor = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if any(stop >= start for (_, stop), (start, _) in pairwise(self.spans)) or any(
            start >= stop for start, stop in self.spans
        ):
            raise ValueError(f"runs must ascend and not touch, got {self.spans}")
        # A last run beyond all positions, so that a search always finds a run.
        ends = [*self.spans, (_END, _END)]
        starts, stops = (torch.tensor(side, device="cpu") for side in zip(*ends, strict=True))
        object.__setattr__(self, "_starts", starts)
        object.__setattr__(self, "_stops", stops)

    def has(self, position: Ints) -> Bools:
        """Return elementwise whether a position is in the set."""
        starts, stops = (side.to(position.device) for side in (self._starts, self._stops))
        run = torch.searchsorted(stops[:-1], position.contiguous(), right=True)
        return position >= starts[run]

    def covers(self, span: Span) -> tuple[Bools, Bools]:
        """Return of each span whether none, and whether all of its positions are in the set."""
        run = torch.searchsorted(self._stops[:-1], span.first.contiguous(), right=True)
        starts, stops = self._starts[run], self._stops[run]
        return starts > span.last, (starts <= span.first) & (span.last < stops)

    def __repr__(self) -> str:
        if len(self.spans) == 1:
            start, stop = self.spans[0]
            if start > -_END and stop < _END:
                return f"range({start}, {stop})"
            return f"slice({start if start > -_END else None}, {stop if stop < _END else None})"
        runs = (
            str(start) if stop - start == 1 else f"*range({start}, {stop})"
            for start, stop in self.spans
        )
        return f"[{', '.join(runs)}]"


def position_set(runs: Iterable[tuple[int, int]]) -> PositionSet:
    """Return the positions of runs as a set; these may touch, or be empty."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(runs):
        if joined and joined[-1][1] == start:
            start = joined.pop()[0]
        if start < stop:
            joined.append((start, stop))
    return PositionSet(tuple(joined))


@dataclass(frozen=True)
class Pairs(Pattern):
    """Each query of a set may attend to each key of another."""

    queries: PositionSet
    keys: PositionSet

    @property
    def key_only(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        every = ((-_END, _END),), ((0, _END),)
        return self.queries.spans in ((), *every) or not self.keys.spans

    def test(self, batch: Ints, query: Ints, key: Ints) -> Bools:
        return self.queries.has(query) & self.keys.has(key)

    def cover_spans(self, batch: Ints, query: Span, key: Span) -> Covers:
        no_query, every_query = self.queries.covers(query)
        no_key, every_key = self.keys.covers(key)
        return codes(no_query | no_key, every_query & every_key, batch)

    def gathered_blocks(
        self, query_positions: Int[Tensor, "queries"], num_keys: int
    ) -> list[GatheredBlocks]:
        queries = self.queries.has(query_positions).nonzero().T
        keys = self.keys.has(torch.arange(num_keys, device="cpu")).nonzero().T
        if not queries.numel() or not keys.numel():
            return []
        return [GatheredBlocks(queries, keys, _step(queries), _step(keys))]

    def __repr__(self) -> str:
        return f"pairs(queries={self.queries!r}, keys={self.keys!r})"


def pairs(*, queries: Positions = slice(None), keys: Positions = slice(None)) -> Pattern:
    """Allow queries × keys: each of `queries` may attend to each of `keys`.

    >>> print(pairs(queries=range(2, 5), keys=[0, 3]).draw(5))
    · · · · ·
    · · · · ·
    ■ · · ■ ·
    ■ · · ■ ·
    ■ · · ■ ·

    Args:
        queries: positions of the queries: a span such as `range(2, 5)` or `slice(2, None)`, a list
            of positions, or one position; all by default. None may be below 0.
        keys: positions of the keys, in the same way.
    """
    return Pairs(_set_of_argument("queries", queries), _set_of_argument("keys", keys))


def _step(rows: Int[Tensor, "1 rows"]) -> int | None:
    """Return 1 if rows are neighbours, so that they can be read in place."""
    return 1 if is_consecutive(rows[0]) else None


def _set_of_argument(name: str, positions: Positions) -> PositionSet:
    """Return the set of positions of an argument."""
    rule = (
        f"pairs: {name} must be a range, a slice or a list of positions from 0 on, "
        f"got {positions!r}"
    )
    if isinstance(positions, tuple):
        raise ValueError(f"{rule}: write range(…) for a span, and [ ] around positions")
    if isinstance(positions, slice):
        return _set_of_slice(positions, rule)
    if isinstance(positions, range) and positions.step == 1 and positions.start >= 0:
        return position_set([(positions.start, positions.stop)])

    if isinstance(positions, int) and not isinstance(positions, bool):
        positions = [positions]
    is_list = isinstance(positions, Sequence | Tensor) and not isinstance(positions, str)
    values = whole_numbers(positions) if is_list else None
    if values is None or values.dim() != 1 or (len(values) > 0 and values.min() < 0):
        raise ValueError(rule)
    return position_set((position, position + 1) for position in set(to_list(values)))


def _set_of_slice(positions: slice, rule: str) -> PositionSet:
    for end in (positions.start, positions.stop):
        is_position = isinstance(end, int) and not isinstance(end, bool) and end >= 0
        if end is not None and not is_position:
            raise ValueError(rule)
    if positions.step not in (None, 1):
        raise ValueError(f"{rule}: a slice has no step, a range may")

    start = -_END if positions.start is None else positions.start
    stop = _END if positions.stop is None else positions.stop
    return position_set([(start, stop)])
