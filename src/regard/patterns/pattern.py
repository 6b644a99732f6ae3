"""The base class of patterns, their combinations, and how much of a rectangle they allow."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Int, Int8
from torch import Tensor

from regard.patterns.integers import as_tensor

Ints = Int[Tensor, "..."]
"""Batch indices or positions, elementwise; the arguments of a function broadcast."""

Bools = Bool[Tensor, "..."]
"""Whether pairs are allowed, elementwise."""

Covers = Int8[Tensor, "..."]
"""Codes of `Cover`, one for each rectangle."""

QueryPositions = Int[Tensor, "queries"]
"""The position of each query."""

DenseMask = Bool[Tensor, "batch_or_1 queries keys"]
"""The mask of all pairs."""


class Cover(IntEnum):
    """How much of a rectangle of pairs a pattern allows."""

    NONE = 0
    SOME = 1
    ALL = 2


class Span(NamedTuple):
    """Positions `first` to `last`, both included; the tensors hold many spans at once."""

    first: Int[Tensor, "*spans"]
    last: Int[Tensor, "*spans"]


def as_span(positions: range) -> Span:
    """Return a range of positions as a span."""
    if len(positions) == 0 or positions.step != 1:
        raise ValueError(f"a span must be a non-empty range with step 1, got {positions}")
    return Span(torch.tensor(positions[0], device="cpu"), torch.tensor(positions[-1], device="cpu"))


def codes(none: Bools, every: Bools, batch: Ints) -> Covers:
    """Return cover codes, given which rectangles are empty and which are full."""
    covers = (1 + every.to(torch.int8)) * ~none
    # torch.broadcast_shapes would import symbolic shapes, which takes a second or more.
    return torch.broadcast_tensors(covers, batch)[0]


class GatheredBlocks(NamedTuple):
    """Rectangles of gathered rows: in class c, each of `queries[c]` with each of `keys[c]`.

    Rows are indices into the query and key tensors, ascending within a class. The step is the
    distance between consecutive rows if it is constant, so that they can be read in place, else
    `None`.
    """

    queries: Int[Tensor, "classes query_rows"]
    keys: Int[Tensor, "classes key_rows"]
    query_step: int | None
    key_step: int | None


class Pattern(ABC):
    """An attention mask as a predicate over positions; `True` means *may attend*.

    A subclass must define `test`. `cover_spans` lets kernels skip rectangles; without it every
    pair is tested. Combine patterns with `&`, `|` and `~`.

    A pattern is immutable once used, because its layouts are cached.
    """

    relative: bool = False
    """Whether `test` depends only on the distance between query and key."""

    key_only: bool = False
    """Whether `test` is the same for all queries of a sequence."""

    @property
    def batch_size(self) -> int | None:
        """The size of the batch axis, or None if all sequences have the same mask."""
        return None

    @property
    def num_positions(self) -> int | None:
        """The number of positions for which the pattern is defined, or None for any."""
        return None

    @abstractmethod
    def test(self, batch: Ints, query: Ints, key: Ints) -> Bools:
        """Return elementwise whether the query position may attend to the key position."""

    def cover_spans(self, batch: Ints, query: Span, key: Span) -> Covers:
        """Return the `Cover` of each rectangle query × key, elementwise, visiting no pair.

        `SOME` is always a correct answer; `NONE` and `ALL` must hold for every pair.
        """
        shape = torch.broadcast_tensors(batch, query.first, key.first)[0].shape
        return torch.full(shape, Cover.SOME, dtype=torch.int8, device=key.first.device)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Tensors that it reads and does not own; most patterns have none."""
        return ()

    def dense(self, query_positions: QueryPositions, num_keys: int) -> DenseMask:
        """Return the dense mask, on the device of the positions.

        Args:
            query_positions: position of each query, [queries].
            num_keys: the number of keys, at positions 0 … num_keys − 1.
        """
        device = query_positions.device
        batch = torch.arange(self.batch_size or 1, device=device)[:, None, None]
        keys = torch.arange(num_keys, device=device)
        allowed = self.test(batch, query_positions[None, :, None], keys)
        return allowed.expand(len(batch), len(query_positions), num_keys)

    def check(self, batch: int, queries: range, num_keys: int) -> None:  # noqa: B027
        """Raise ValueError if the pattern doesn't fit a call.

        Args:
            batch: the number of sequences.
            queries: the lowest to the highest query position.
            num_keys: the number of keys, at positions 0 … num_keys − 1.
        """

    def gathered_blocks(
        self, query_positions: QueryPositions, num_keys: int
    ) -> list[GatheredBlocks] | None:
        """Return disjoint gathered rectangles that hold exactly the allowed pairs.

        None (the default) means that the pattern is block-shaped and `cover_spans` suffices.
        Patterns that touch a little of every block, such as columns, are faster gathered.
        """
        return None

    def leaves(self) -> Iterator["Pattern"]:
        """Yield the members of a combination; itself if it isn't one."""
        yield self

    def within(self, batch: Ints, query: Span, key: Span) -> "Pattern":
        """Return a simpler pattern that agrees with this one on the rectangles, if any."""
        return self

    def simplified(self, queries: range, num_keys: int) -> "Pattern":
        """Return the pattern without members that have no effect on these positions.

        Args:
            queries: the lowest to the highest query position, not empty.
            num_keys: the number of keys, at least 1.
        """
        batch, query, key = self._rectangle(queries, range(num_keys))
        simple = self.within(batch, query, key)
        cover = simple.cover_spans(batch, query, key)
        return Everyone() if bool((cover == Cover.ALL).all()) else simple

    def _rectangle(self, queries: range, keys: range) -> tuple[Tensor, Span, Span]:
        return torch.arange(self.batch_size or 1, device="cpu"), as_span(queries), as_span(keys)

    def allows(
        self,
        queries: Sequence[int] | Int[Tensor, "queries"],
        keys: Sequence[int] | Int[Tensor, "keys"],
    ) -> Bool[Tensor, "queries keys"] | Bool[Tensor, "batch queries keys"]:
        """Return the mask of a rectangle.

        Args:
            queries: positions of the queries, [queries].
            keys: positions of the keys, [keys].

        Returns:
            [queries, keys], or [batch, queries, keys] where the pattern has a batch axis.
        """
        query, key = (as_tensor(x).to(torch.long) for x in (queries, keys))
        for leaf in self.leaves():
            leaf._check_known(query, key)
        batch = torch.arange(self.batch_size or 1, device=key.device)
        mask = self.test(batch[:, None, None], query[None, :, None], key[None, None, :])
        mask = mask.expand(len(batch), len(query), len(key))
        return mask if self.batch_size else mask[0]

    def _check_known(self, query: Tensor, key: Tensor) -> None:
        if self.num_positions is None or not len(query) or not len(key):
            return
        if int(key.min()) < 0 or int(key.max()) >= self.num_positions:
            raise ValueError(
                f"{self!r} has positions 0 to {self.num_positions - 1}, "
                f"got keys at {int(key.min())} to {int(key.max())}"
            )
        queries = range(int(query.min()), int(query.max()) + 1)
        self.check(self.batch_size or 1, queries, self.num_positions)

    def cover(self, queries: range, keys: range) -> Cover:
        """Return whether none, some or all pairs of a rectangle are allowed.

        The pairs are not visited, so an empty or full rectangle may be `SOME`; `NONE` and `ALL`
        are certain. With a batch axis they hold for every sequence.

        Args:
            queries: a range of query positions, not empty, step 1.
            keys: a range of key positions, not empty, step 1.
        """
        codes = self.cover_spans(*self._rectangle(queries, keys))
        low, high = int(codes.min()), int(codes.max())
        return Cover(low) if low == high else Cover.SOME

    def draw(self, num_queries: int, num_keys: int | None = None) -> str:
        """Draw the mask, a row per query; the last query has the position of the last key."""
        num_keys = num_queries if num_keys is None else num_keys
        mask = self.allows(range(num_keys - num_queries, num_keys), range(num_keys))
        drawings = mask if mask.dim() == 3 else mask[None]
        return "\n\n".join(
            "\n".join(" ".join("■" if allowed else "·" for allowed in row) for row in drawing)
            for drawing in drawings.tolist()
        )

    def __setattr__(self, name: str, value: object) -> None:
        if "_made" in vars(self):
            raise AttributeError(
                f"a pattern is immutable once used, got {name} = {value!r}: make a new one"
            )
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, object]:
        # The cache is not pickled.
        return {name: value for name, value in vars(self).items() if name != "_made"}

    def __bool__(self) -> bool:
        raise TypeError("a pattern has no truth value: combine patterns with &, | and ~")

    def __and__(self, second: "Pattern") -> "Pattern":
        return Both(self, _checked(second, "&"))

    def __or__(self, second: "Pattern") -> "Pattern":
        return Either(self, _checked(second, "|"))

    def __invert__(self) -> "Pattern":
        return Not(self)


@dataclass(frozen=True)
class Everyone(Pattern):
    """Every position attends to every position."""

    relative = True
    key_only = True

    def test(self, batch: Ints, query: Ints, key: Ints) -> Bools:
        return query == query

    def cover_spans(self, batch: Ints, query: Span, key: Span) -> Covers:
        return super().cover_spans(batch, query, key).fill_(Cover.ALL)

    def __repr__(self) -> str:
        return "everyone()"


def everyone() -> Pattern:
    """Let every position attend to every position.

    >>> print(everyone().draw(4))
    ■ ■ ■ ■
    ■ ■ ■ ■
    ■ ■ ■ ■
    ■ ■ ■ ■
    """
    return Everyone()


@dataclass(frozen=True)
class _Pair(Pattern):
    """The shared part of `Both` and `Either`."""

    first: Pattern
    second: Pattern

    def __post_init__(self) -> None:
        a, b = self.first.batch_size, self.second.batch_size
        if a is not None and b is not None and a != b:
            raise ValueError(
                "combined patterns must have the same batch size, "
                f"got {a} in {self.first!r} and {b} in {self.second!r}"
            )

    @property
    def relative(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.first.relative and self.second.relative

    @property
    def key_only(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.first.key_only and self.second.key_only

    @property
    def batch_size(self) -> int | None:
        return self.first.batch_size or self.second.batch_size

    def check(self, batch: int, queries: range, num_keys: int) -> None:
        self.first.check(batch, queries, num_keys)
        self.second.check(batch, queries, num_keys)

    def leaves(self) -> Iterator[Pattern]:
        yield from self.first.leaves()
        yield from self.second.leaves()

    def _covers(self, batch: Ints, query: Span, key: Span) -> tuple[Covers, Covers]:
        first = self.first.cover_spans(batch, query, key)
        return first, self.second.cover_spans(batch, query, key)

    def _without(self, code: Cover, batch: Tensor, query: Span, key: Span) -> Pattern:
        """Drop a member whose cover is `code` throughout: it has no effect."""
        pair = type(self)(*(p.within(batch, query, key) for p in (self.first, self.second)))
        first, second = pair._covers(batch, query, key)
        if bool((first == code).all()):
            return pair.second
        return pair.first if bool((second == code).all()) else pair


@dataclass(frozen=True)
class Both(_Pair):
    """Allow the pairs that both patterns allow."""

    def test(self, batch: Ints, query: Ints, key: Ints) -> Bools:
        return self.first.test(batch, query, key) & self.second.test(batch, query, key)

    def dense(self, query_positions: QueryPositions, num_keys: int) -> DenseMask:
        first = self.first.dense(query_positions, num_keys)
        return first & self.second.dense(query_positions, num_keys)

    def cover_spans(self, batch: Ints, query: Span, key: Span) -> Covers:
        return torch.minimum(*self._covers(batch, query, key))

    def within(self, batch: Ints, query: Span, key: Span) -> Pattern:
        return self._without(Cover.ALL, batch, query, key)

    def __repr__(self) -> str:
        return f"{_bracketed(self.first, Either)} & {_bracketed(self.second, Either, Both)}"


@dataclass(frozen=True)
class Either(_Pair):
    """Allow the pairs that at least one pattern allows."""

    def test(self, batch: Ints, query: Ints, key: Ints) -> Bools:
        return self.first.test(batch, query, key) | self.second.test(batch, query, key)

    def dense(self, query_positions: QueryPositions, num_keys: int) -> DenseMask:
        first = self.first.dense(query_positions, num_keys)
        return first | self.second.dense(query_positions, num_keys)

    def cover_spans(self, batch: Ints, query: Span, key: Span) -> Covers:
        return torch.maximum(*self._covers(batch, query, key))

    def within(self, batch: Ints, query: Span, key: Span) -> Pattern:
        return self._without(Cover.NONE, batch, query, key)

    def __repr__(self) -> str:
        return f"{_bracketed(self.first, Both)} | {_bracketed(self.second, Either, Both)}"


@dataclass(frozen=True)
class _Wrapped(Pattern):
    """The shared part of `Not` and `Remapped`."""

    pattern: Pattern

    @property
    def relative(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.pattern.relative

    @property
    def key_only(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.pattern.key_only

    @property
    def batch_size(self) -> int | None:
        return self.pattern.batch_size


@dataclass(frozen=True)
class Not(_Wrapped):
    """Allow the pairs that a pattern does not."""

    def test(self, batch: Ints, query: Ints, key: Ints) -> Bools:
        return ~self.pattern.test(batch, query, key)

    def dense(self, query_positions: QueryPositions, num_keys: int) -> DenseMask:
        return ~self.pattern.dense(query_positions, num_keys)

    def cover_spans(self, batch: Ints, query: Span, key: Span) -> Covers:
        return Cover.ALL - self.pattern.cover_spans(batch, query, key)

    def check(self, batch: int, queries: range, num_keys: int) -> None:
        self.pattern.check(batch, queries, num_keys)

    def leaves(self) -> Iterator[Pattern]:
        return self.pattern.leaves()

    def within(self, batch: Ints, query: Span, key: Span) -> Pattern:
        return Not(self.pattern.within(batch, query, key))

    def __repr__(self) -> str:
        return f"~{_bracketed(self.pattern, Either, Both)}"


@dataclass(frozen=True)
class Remapped(_Wrapped):
    """A pattern for other positions.

    Attributes:
        query: added to the position of a query before the pattern tests it.
        key: added to the position of a key.
        exchanged: whether keys attend to queries.
    """

    query: int
    key: int
    exchanged: bool = False

    @property
    def key_only(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.pattern.key_only and not self.exchanged

    @property
    def num_positions(self) -> int | None:
        known = self.pattern.num_positions
        return None if known is None else max(0, known - self.key)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.pattern.tensors

    def test(self, batch: Ints, query: Ints, key: Ints) -> Bools:
        return self.pattern.test(batch, *self._ordered(query + self.query, key + self.key))

    def cover_spans(self, batch: Ints, query: Span, key: Span) -> Covers:
        queries = Span(query.first + self.query, query.last + self.query)
        keys = Span(key.first + self.key, key.last + self.key)
        return self.pattern.cover_spans(batch, *self._ordered(queries, keys))

    def check(self, batch: int, queries: range, num_keys: int) -> None:
        moved = range(queries.start + self.query, queries.stop + self.query)
        rows, columns = self._ordered(moved, range(self.key, self.key + num_keys))
        assert columns.start >= 0 or self.pattern.num_positions is None
        # Exchanged, the call may have few of the columns.
        known = (self.pattern.num_positions or 0) if self.exchanged else 0
        self.pattern.check(batch, rows, max(columns.stop, known))

    def _ordered(self, query: Any, key: Any) -> tuple[Any, Any]:
        return (key, query) if self.exchanged else (query, key)

    def __repr__(self) -> str:
        name = "transposed" if self.exchanged else "shifted"
        return f"{name}({self.pattern!r}, queries={self.query}, keys={self.key})"


def intersect(first: Pattern | None, second: Pattern | None) -> Pattern | None:
    """Return `first & second`; None allows every pair."""
    if first is None:
        return second
    return first if second is None else first & second


def _bracketed(pattern: Pattern, *kinds: type[Pattern]) -> str:
    return f"({pattern!r})" if isinstance(pattern, kinds) else repr(pattern)


def _checked(value: object, operator: str) -> Pattern:
    if not isinstance(value, Pattern):
        raise TypeError(f"{operator} needs a pattern on both sides, got {type(value).__name__}")
    return value
