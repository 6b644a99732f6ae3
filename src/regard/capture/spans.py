"""Masks with one contiguous span of keys per row, and their patterns."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.patterns import Pattern, causal, documents, everyone, padding, window
from regard.patterns.pattern import Everyone

_CHUNK = 1 << 24
"""Pairs of a mask per chunk."""


class Placed(NamedTuple):
    """A pattern, and the position of the first query."""

    pattern: Pattern
    first_query: int


class _Candidate(NamedTuple):
    """A candidate pattern of a mask, and its spans."""

    placed: Placed
    first: Int[Tensor, "some_batch queries"]
    last: Int[Tensor, "some_batch queries"]


@dataclass(frozen=True, eq=False)
class Spans:
    """The first and the last key of each query, if all keys between them are allowed.

    Causal masks, windows, padding, packed documents and their intersections have spans. A row
    without keys has `first` at `num_keys` and `last` at −1.

    Attributes:
        first: on the CPU; the batch is 1 if all sequences share a mask.
        last: on the CPU.
        num_keys: the number of keys.
    """

    first: Int[Tensor, "batch queries"]
    last: Int[Tensor, "batch queries"]
    num_keys: int

    @classmethod
    def of(cls, mask: Bool[Tensor, "batch queries keys"]) -> "Spans | None":
        """Return the spans of a mask, or None if a row has gaps."""
        batch, _, num_keys = mask.shape
        found: list[tuple[Tensor, Tensor]] = []
        for rows in mask.split(max(1, _CHUNK // max(1, batch * num_keys)), dim=1):
            # argmax returns the first of equal numbers.
            first = rows.byte().argmax(dim=2)
            last = num_keys - 1 - rows.flip(2).byte().argmax(dim=2)
            count = rows.sum(dim=2)
            if bool(((count > 0) & (count != last - first + 1)).any()):
                return None
            empty = count == 0
            found.append((first.masked_fill(empty, num_keys), last.masked_fill(empty, -1)))
        first, last = (torch.cat(parts, dim=1).cpu() for parts in zip(*found, strict=True))
        return cls(first, last, num_keys)

    def named(self, batch: int, *, cross: bool) -> Placed | None:
        """Return a pattern that allows exactly the same pairs, or None.

        Args:
            batch: the batch size of the call.
            cross: whether it is cross-attention, whose queries have no positions among the keys.
        """
        some = self.first <= self.last
        start = self.first.masked_fill(~some, self.num_keys).amin(dim=1, keepdim=True)
        stop = self.last.masked_fill(~some, -1).amax(dim=1, keepdim=True) + 1
        candidates = list(self._candidates(some, start, stop, cross=cross))
        for candidate in candidates:
            if self._equal(candidate.first, candidate.last):
                return candidate.placed
        for candidate in candidates:
            if self._equal(candidate.first.maximum(start), candidate.last.minimum(stop - 1)):
                pattern, first_query = candidate.placed
                lengths = (stop - start).clamp(min=0).flatten().expand(batch)
                hidden = padding(lengths, starts=start.minimum(stop).flatten().expand(batch))
                plain = isinstance(pattern, Everyone)
                return Placed(hidden if plain else pattern & hidden, first_query)
        return None

    def _candidates(
        self, some: Tensor, start: Tensor, stop: Tensor, *, cross: bool
    ) -> Iterator[_Candidate]:
        """Yield candidates, without padding."""
        num_queries = self.first.shape[1]
        rows = torch.arange(num_queries, device="cpu")[None]
        # The position of the first query if the last one is at the last key.
        behind = self.num_keys - num_queries
        lowest, highest = torch.zeros_like(rows), torch.full_like(rows, self.num_keys - 1)
        anything = _Candidate(Placed(everyone(), behind), lowest, highest)
        # One query, and unused keys behind it: everyone() would lose its position.
        shortest, longest = int(stop.min()), int(stop.max())
        roomy = not cross and num_queries == 1 and 0 < shortest == longest < self.num_keys
        if not roomy:
            yield anything
        if cross:
            return
        # The window before and after each row, from the rows that are not cut off by padding.
        ahead = _largest((self.last - rows)[some & (self.last < stop - 1)])
        back = _largest((rows - self.first)[some & (self.first > start)])
        if roomy:
            ahead = longest - 1
        for reach in {ahead: None, behind: None}:
            first_query = behind if reach is None else min(reach, behind)
            if first_query < 0 or (back is not None and back + first_query < 0):
                continue
            if reach is None and back is None:
                continue
            pattern = _band(
                None if back is None else back + first_query,
                None if reach is None else reach - first_query,
                far=self.num_keys + num_queries,
            )
            yield _Candidate(
                Placed(pattern, first_query),
                lowest if back is None else rows - back,
                highest if reach is None else rows + reach,
            )
        if behind == 0:
            yield from self._packed(rows)
        if roomy:
            yield anything

    def _packed(self, rows: Int[Tensor, "1 queries"]) -> Iterator[_Candidate]:
        """Yield candidates with documents that begin at the first keys of rows."""
        begins = torch.ones_like(self.first, dtype=torch.bool)
        begins[:, 1:] = self.first.diff(dim=1) != 0
        ids = begins.cumsum(dim=1)
        first = (rows * begins).cummax(dim=1).values
        ends = torch.ones_like(begins)
        ends[:, :-1] = begins[:, 1:]
        last = (rows.masked_fill(~ends, self.num_keys)).flip(1).cummin(dim=1).values.flip(1)
        pattern = documents(ids if len(ids) > 1 else ids[0])
        yield _Candidate(Placed(causal() & pattern, 0), first, last.minimum(rows))
        yield _Candidate(Placed(pattern, 0), first, last)

    def _equal(self, first: Tensor, last: Tensor) -> bool:
        """Return whether spans are equal; all empty spans are."""
        first, last = first.clamp(min=0), last.clamp(max=self.num_keys - 1)
        empty = first > last
        first, last = first.masked_fill(empty, self.num_keys), last.masked_fill(empty, -1)
        return bool((first == self.first).all()) and bool((last == self.last).all())


def _largest(numbers: Tensor) -> int | None:
    return int(numbers.max()) if numbers.numel() else None


def _band(before: int | None, after: int | None, *, far: int) -> Pattern:
    """Return the pattern of a band; None for no limit."""
    if after == 0:
        return causal() if before is None else causal() & window(before=before)
    return window(before=far if before is None else before, after=far if after is None else after)
