"""Convert masks to patterns, or to biases if no pattern fits.

A mask tensor has n × n numbers, its pattern a few. Nearly all masks allow each query one span of
keys: causal ones, windows, padding, packed documents, and their intersections. So a mask is read in
three steps:

1. Which pairs are masked? A boolean mask says it; of an added one, see `score_mask`. If that is
   unknown, the mask is a bias and no pattern.
2. Is each row one span? `Spans` has the first and the last key of each query. A row with a gap ends
   the attempt: the mask itself becomes the pattern.
3. Whose spans are these? Candidates are made from the spans themselves, and compared with them:

       row   mask        first  last
       0     · · · ·     4      −1      a row without keys
       1     · ■ · ·     1      1       its first key is at start: padding may have cut it
       2     · ■ ■ ·     1      2       its last key is its own: causal
       3     · · ■ ■     2      3       its first key is past start: window(before=1)

   Key 0 has no query, so start is 1. It is causal() & window(before=1) & padding([3], starts=[1]).
   The candidates, in order: everyone; a band, whose reach is the largest of the rows that padding
   doesn't cut; packed documents. Each is tried without padding, then with it.

Comparing spans compares the masks, exactly, with n numbers instead of n². No pattern is assumed
from a part of a mask. Cost: a pass over the mask, some rows at a time. All layers of a model share
their masks, so they are cached by memory and version.

Keys count from 0, and the position of the first query goes with the pattern: the causal mask of the
last 2 of 5 tokens is causal(), first query 3.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.capture.score_mask import Unknown, masked_by
from regard.hf.masks import BooleanMask, PatternMask
from regard.patterns import Pattern, causal, documents, everyone, from_mask, padding, window
from regard.patterns.pattern import Everyone
from regard.positions import Bias, from_tensor
from regard.positions.from_tensor import FromTensor

_LATEST = 4
"""Number of cached masks: layers of a model have up to three kinds."""

_CHUNK = 1 << 24
"""Pairs of a mask whose spans are found at once: 16 MB, as bytes."""


@dataclass(frozen=True, eq=False)
class ParsedMask:
    """A mask as a pattern and a bias.

    Attributes:
        pattern: its pattern.
        first_query: the position of the first query in pattern and bias.
        bias: what it adds to scores, if it is more than a pattern.
        mask_known: whether the pattern has all pairs that it masks for all heads; if not, the bias
            may mask some.
    """

    pattern: Pattern
    first_query: int
    bias: Bias | None = None
    mask_known: bool = True


@dataclass(frozen=True)
class Sizes:
    """The sizes of a call."""

    batch: int
    heads: int
    queries: int
    keys: int

    @property
    def behind(self) -> int:
        """The position of the first query if the last one is at the last key."""
        return self.keys - self.queries


class Masks:
    """Converts masks, and caches the latest, which all layers of a model share.

    Equal masks without a pattern are kept once.
    """

    def __init__(self) -> None:
        self._latest: deque[_CachedMask] = deque(maxlen=_LATEST)
        self._kept: deque[tuple[Tensor, ParsedMask]] = deque(maxlen=_LATEST)

    def read(self, mask: Tensor | None, sizes: Sizes, *, cross: bool) -> ParsedMask:
        """Convert a mask.

        Args:
            mask: boolean, where True means may attend, or added to the scores. Its shape
                broadcasts to [batch, heads, queries, keys]; further keys are ignored.
            sizes: the sizes of the call.
            cross: whether it is cross-attention.
        """
        if mask is None or 0 in (sizes.batch, sizes.queries, sizes.keys):
            return ParsedMask(everyone(), sizes.behind)
        if isinstance(mask, PatternMask):
            return ParsedMask(mask.pattern, mask.first_query)
        mask = mask.dense() if isinstance(mask, BooleanMask) else mask
        mask = mask.detach()[(None,) * (4 - mask.dim())][..., : sizes.keys]
        mask = _without_copies(mask)
        for cached in self._latest:
            if (cached.sizes, cached.cross) == (sizes, cross) and cached.is_equal(mask):
                return cached.parsed
        parsed = self._parse(mask, sizes, cross=cross)
        self._latest.append(_CachedMask(mask, sizes, cross, parsed))
        return parsed

    def forget(self) -> None:
        """Clear the cache."""
        self._latest.clear()

    def _parse(self, mask: Tensor, sizes: Sizes, *, cross: bool) -> ParsedMask:
        mask, is_boolean = _without_equal_heads(mask), mask.dtype == torch.bool
        try:
            masked = ~mask if is_boolean else masked_by(mask, mask.shape[-1])
        except Unknown:
            return replace(self._keep(mask, sizes), mask_known=False)
        if masked is None:
            adds = bool(mask.any())
            return self._keep(mask, sizes) if adds else ParsedMask(everyone(), sizes.behind)
        adds = not is_boolean and bool((mask.masked_fill(masked, 0.0) != 0.0).any())

        # 1. A pattern is the same for all heads.
        masked = _without_equal_heads(masked)
        pairs: ParsedMask | None = None
        if masked.shape[1] == 1:
            pairs = self._parse_pairs(~masked[:, 0], sizes, cross=cross)
            if not adds:
                return pairs

        # 2. The rest is a bias.
        numbers = mask if adds else torch.zeros_like(mask, dtype=torch.float32)
        parsed = self._keep(numbers.masked_fill(masked, -torch.inf), sizes)
        if pairs is None:
            return parsed
        assert isinstance(parsed.bias, FromTensor)
        return replace(pairs, bias=replace(parsed.bias, first_query=pairs.first_query))

    def _parse_pairs(
        self, allowed: Bool[Tensor, "batch queries keys"], sizes: Sizes, *, cross: bool
    ) -> ParsedMask:
        """Convert allowed pairs."""
        spans = Spans.of(allowed.expand(-1, -1, sizes.keys))
        if spans is None:
            return self._keep(allowed, sizes)
        rows = (spans.first.expand(-1, sizes.queries), spans.last.expand(-1, sizes.queries))
        parsed = Spans(*rows, sizes.keys).to_pattern(sizes.batch, cross=cross)
        return self._keep(allowed, sizes) if parsed is None else parsed

    def _keep(self, mask: Tensor, sizes: Sizes) -> ParsedMask:
        """Convert a mask by keeping its numbers, once for all equal ones."""
        shape = (*mask.shape[:-2], sizes.queries, sizes.keys)
        for kept, parsed in self._kept:
            same = (kept.dtype, kept.device, kept.shape) == (mask.dtype, mask.device, shape)
            if same and torch.equal(kept, mask.expand(shape)):
                return parsed
        with torch.inference_mode(False):
            # A copy: the model may overwrite its mask.
            mask = mask.clone().expand(shape)
        if mask.dtype == torch.bool:
            parsed = ParsedMask(from_mask(mask if len(mask) > 1 else mask[0]), sizes.behind)
        else:
            bias = from_tensor(mask, first_query=sizes.behind)
            parsed = ParsedMask(everyone(), sizes.behind, bias)
        self._kept.append((mask, parsed))
        return parsed


class _CachedMask:
    """A mask and its conversion."""

    def __init__(self, mask: Tensor, sizes: Sizes, cross: bool, parsed: ParsedMask) -> None:
        self.sizes, self.cross, self.parsed = sizes, cross, parsed
        # Inference tensors have no version counter: compare their content.
        self._mask = mask.clone() if mask.is_inference() else mask
        self._version = None if mask.is_inference() else mask._version

    def is_equal(self, mask: Tensor) -> bool:
        """Return whether a mask is the same, unmodified."""
        cached = self._mask
        if (cached.shape, cached.dtype, cached.device) != (mask.shape, mask.dtype, mask.device):
            return False
        if mask.is_inference():
            return torch.equal(cached, mask)
        same = (cached.data_ptr(), cached.stride()) == (mask.data_ptr(), mask.stride())
        return same and mask._version == cached._version == self._version


def _without_copies(mask: Tensor) -> Tensor:
    """Return a mask with size 1 along expanded axes."""
    for axis, step in enumerate(mask.stride()):
        if step == 0 and mask.shape[axis] > 1:
            mask = mask.narrow(axis, 0, 1)
    return mask


def _without_equal_heads(mask: Tensor) -> Tensor:
    """Return a mask with one head if all heads are equal."""
    if mask.shape[1] == 1 or not torch.equal(mask, mask[:, :1].expand_as(mask)):
        return mask
    return mask[:, :1]


class _Candidate(NamedTuple):
    """A candidate pattern of a mask, and its spans."""

    parsed: ParsedMask
    first: Int[Tensor, "some_batch queries"]
    last: Int[Tensor, "some_batch queries"]


@dataclass(frozen=True, eq=False)
class Spans:
    """The first and the last key of each query, if all keys between them are allowed.

    A row without keys has `first` at `num_keys` and `last` at −1.

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
        chunks: list[tuple[Tensor, Tensor]] = []
        for rows in mask.split(max(1, _CHUNK // max(1, batch * num_keys)), dim=1):
            # argmax returns the first of equal numbers.
            first = rows.byte().argmax(dim=2)
            last = num_keys - 1 - rows.flip(2).byte().argmax(dim=2)
            count = rows.sum(dim=2)
            if bool(((count > 0) & (count != last - first + 1)).any()):
                return None
            empty = count == 0
            chunks.append((first.masked_fill(empty, num_keys), last.masked_fill(empty, -1)))
        first, last = (torch.cat(parts, dim=1).cpu() for parts in zip(*chunks, strict=True))
        return cls(first, last, num_keys)

    def to_pattern(self, batch: int, *, cross: bool) -> ParsedMask | None:
        """Return a pattern that allows exactly the same pairs, or None.

        Args:
            batch: the batch size of the call.
            cross: whether it is cross-attention, whose queries have no positions among the keys.
        """
        has_keys = self.first <= self.last
        # The keys of each sequence that any query has: all others are padding.
        start = self.first.masked_fill(~has_keys, self.num_keys).amin(dim=1, keepdim=True)
        stop = self.last.masked_fill(~has_keys, -1).amax(dim=1, keepdim=True) + 1
        candidates = list(self._candidates(has_keys, start, stop, cross=cross))
        for candidate in candidates:
            if self._equal(candidate.first, candidate.last):
                return candidate.parsed

        for candidate in candidates:
            if self._equal(candidate.first.maximum(start), candidate.last.minimum(stop - 1)):
                lengths = (stop - start).clamp(min=0).flatten().expand(batch)
                tokens = padding(lengths, starts=start.minimum(stop).flatten().expand(batch))
                pattern = candidate.parsed.pattern
                pattern = tokens if isinstance(pattern, Everyone) else pattern & tokens
                return replace(candidate.parsed, pattern=pattern)
        return None

    def _candidates(
        self, has_keys: Tensor, start: Tensor, stop: Tensor, *, cross: bool
    ) -> Iterator[_Candidate]:
        """Yield candidates, without padding.

        Args:
            has_keys: whether a row has keys.
            start: the first key of each sequence that any query has.
            stop: the same, one behind the last.
            cross: whether it is cross-attention.
        """
        num_queries = self.first.shape[1]
        rows = torch.arange(num_queries, device="cpu")[None]
        # The position of the first query if the last one is at the last key.
        behind = self.num_keys - num_queries
        lowest, highest = torch.zeros_like(rows), torch.full_like(rows, self.num_keys - 1)
        anything = _Candidate(ParsedMask(everyone(), behind), lowest, highest)

        # One query, and unused keys behind it: everyone() would lose its position.
        shortest, longest = int(stop.min()), int(stop.max())
        has_room = not cross and num_queries == 1 and 0 < shortest == longest < self.num_keys
        if not has_room:
            yield anything
        if cross:
            return

        # The reach of the band after and before each row, from the rows that padding doesn't cut.
        after = _largest((self.last - rows)[has_keys & (self.last < stop - 1)])
        before = _largest((rows - self.first)[has_keys & (self.first > start)])
        if has_room:
            after = longest - 1
        # Where possible the pattern is causal: the first query is at its last key. Padding may hide
        # that reach; then the last query is at the last key.
        for reach in {after: None, behind: None}:
            first_query = behind if reach is None else min(reach, behind)
            if first_query < 0 or (before is not None and before + first_query < 0):
                continue
            if reach is None and before is None:
                continue
            pattern = _band(
                None if before is None else before + first_query,
                None if reach is None else reach - first_query,
                far=self.num_keys + num_queries,
            )
            yield _Candidate(
                ParsedMask(pattern, first_query),
                lowest if before is None else rows - before,
                highest if reach is None else rows + reach,
            )

        if behind == 0:
            yield from self._packed(rows)
        if has_room:
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
        yield _Candidate(ParsedMask(causal() & pattern, 0), first, last.minimum(rows))
        yield _Candidate(ParsedMask(pattern, 0), first, last)

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
