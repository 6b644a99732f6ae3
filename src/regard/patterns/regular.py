"""Regular patterns: a formula of the positions of query and key, without a tensor."""

from collections import defaultdict
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from regard.patterns.integers import is_consecutive, to_list, whole_number
from regard.patterns.pattern import Bools, Covers, GatheredBlocks, Ints, Pattern, Span, codes


@dataclass(frozen=True)
class Causal(Pattern):
    """Each position attends to itself and to earlier ones."""

    relative = True

    def test(self, batch: Ints, query: Ints, key: Ints) -> Bools:
        return key <= query

    def cover_spans(self, batch: Ints, query: Span, key: Span) -> Covers:
        return codes(none=key.first > query.last, every=key.last <= query.first, batch=batch)

    def __repr__(self) -> str:
        return "causal()"


def causal() -> Pattern:
    """Let each position attend to itself and to earlier ones (masked self-attention).

    >>> print(causal().draw(4))
    ■ · · ·
    ■ ■ · ·
    ■ ■ ■ ·
    ■ ■ ■ ■

    With three cached keys and two new tokens, the queries have positions 3 and 4:

    >>> print(causal().draw(2, 5))
    ■ ■ ■ ■ ·
    ■ ■ ■ ■ ■
    """
    return Causal()


@dataclass(frozen=True)
class Window(Pattern):
    """Position i attends to i − before … i + after."""

    before: int
    after: int = 0
    relative = True

    def __post_init__(self) -> None:
        for name, value in (("before", self.before), ("after", self.after)):
            if value < 0:
                raise ValueError(f"window: {name} must be at least 0, got {value}")

    def test(self, batch: Ints, query: Ints, key: Ints) -> Bools:
        return (key >= query - self.before) & (key <= query + self.after)

    def cover_spans(self, batch: Ints, query: Span, key: Span) -> Covers:
        return codes(
            none=(key.last < query.first - self.before) | (key.first > query.last + self.after),
            every=(key.first >= query.last - self.before) & (key.last <= query.first + self.after),
            batch=batch,
        )

    def __repr__(self) -> str:
        after = f", after={self.after}" if self.after else ""
        return f"window(before={self.before}{after})"


def window(before: int, after: int = 0) -> Pattern:
    """Let position i attend to i − before … i + after: before + 1 + after keys.

    >>> print(window(before=1, after=1).draw(5))
    ■ ■ · · ·
    ■ ■ ■ · ·
    · ■ ■ ■ ·
    · · ■ ■ ■
    · · · ■ ■

    Args:
        before: number of earlier positions, at least 0.
        after: number of later positions, at least 0.
    """
    return Window(whole_number("window: before", before), whole_number("window: after", after))


@dataclass(frozen=True)
class Prefix(Pattern):
    """Every position attends to the first `length` positions."""

    length: int

    key_only = True

    def __post_init__(self) -> None:
        if self.length < 0:
            raise ValueError(f"prefix: length must be at least 0, got {self.length}")

    def test(self, batch: Ints, query: Ints, key: Ints) -> Bools:
        return key < self.length

    def cover_spans(self, batch: Ints, query: Span, key: Span) -> Covers:
        return codes(none=key.first >= self.length, every=key.last < self.length, batch=batch)

    def __repr__(self) -> str:
        return f"prefix({self.length})"


def prefix(length: int) -> Pattern:
    """Let every position attend to the first `length` positions.

    With `causal` it is the mask of a prefix language model, bidirectional on its prompt:

    >>> from regard.patterns import causal
    >>> print((causal() | prefix(3)).draw(5))
    ■ ■ ■ · ·
    ■ ■ ■ · ·
    ■ ■ ■ · ·
    ■ ■ ■ ■ ·
    ■ ■ ■ ■ ■

    Args:
        length: length of the prefix, at least 0.
    """
    return Prefix(whole_number("prefix: length", length))


@dataclass(frozen=True)
class Columns(Pattern):
    """Every position attends to the multiples of a number."""

    every: int

    key_only = True

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"columns: every must be at least 1, got {self.every}")

    def test(self, batch: Ints, query: Ints, key: Ints) -> Bools:
        return key % self.every == 0

    def cover_spans(self, batch: Ints, query: Span, key: Span) -> Covers:
        none = key.last // self.every * self.every < key.first
        full = (key.first == key.last) & ~none if self.every > 1 else ~none
        return codes(none, full, batch)

    def gathered_blocks(
        self, query_positions: Int[Tensor, "queries"], num_keys: int
    ) -> list[GatheredBlocks]:
        queries = torch.arange(len(query_positions), device="cpu")[None]
        keys = torch.arange(0, num_keys, self.every, device="cpu")[None]
        return [GatheredBlocks(queries, keys, 1, self.every)]

    def __repr__(self) -> str:
        return f"columns(every={self.every})"


def columns(every: int) -> Pattern:
    """Let every position attend to positions 0, `every`, 2 · `every` and so on.

    >>> print(columns(every=3).draw(5))
    ■ · · ■ ·
    ■ · · ■ ·
    ■ · · ■ ·
    ■ · · ■ ·
    ■ · · ■ ·

    Args:
        every: the distance between the columns, at least 1. Listed keys are `pairs(keys=[0, 5])`.
    """
    hint = "; for listed keys write pairs(keys=[…])"
    return Columns(whole_number("columns: every", every, hint))


@dataclass(frozen=True)
class Strided(Pattern):
    """A position attends to those at a distance that is a multiple of the stride."""

    stride: int
    relative = True

    def __post_init__(self) -> None:
        if self.stride < 1:
            raise ValueError(f"strided: stride must be at least 1, got {self.stride}")

    def test(self, batch: Ints, query: Ints, key: Ints) -> Bools:
        return (query - key) % self.stride == 0

    def cover_spans(self, batch: Ints, query: Span, key: Span) -> Covers:
        low, high = query.first - key.last, query.last - key.first
        none = high // self.stride * self.stride < low
        every = (low == high) & ~none if self.stride > 1 else ~none
        return codes(none, every, batch)

    def gathered_blocks(
        self, query_positions: Int[Tensor, "queries"], num_keys: int
    ) -> list[GatheredBlocks]:
        # 1. One class per remainder: queries and keys of one remainder, with all their pairs.
        remainders = query_positions % self.stride
        order = torch.argsort(remainders, stable=True)
        counts = torch.bincount(remainders, minlength=self.stride)

        # 2. Classes of one size are stacked.
        same_size: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for remainder, queries in enumerate(order.split(to_list(counts))):
            first_key = min(remainder, num_keys)
            keys = torch.arange(first_key, num_keys, self.stride, device="cpu")
            if len(queries) and len(keys):
                same_size[len(queries), len(keys)].append((queries, keys))

        query_step = self.stride if is_consecutive(query_positions) else None
        return [
            GatheredBlocks(
                torch.stack([queries for queries, _ in classes]),
                torch.stack([keys for _, keys in classes]),
                query_step,
                self.stride,
            )
            for classes in same_size.values()
        ]

    def __repr__(self) -> str:
        return f"strided({self.stride})"


def strided(stride: int) -> Pattern:
    """Let each position attend to itself and to every `stride`-th position from it.

    >>> print(strided(3).draw(6))
    ■ · · ■ · ·
    · ■ · · ■ ·
    · · ■ · · ■
    ■ · · ■ · ·
    · ■ · · ■ ·
    · · ■ · · ■

    Args:
        stride: the distance, at least 1.
    """
    return Strided(whole_number("strided: stride", stride))
