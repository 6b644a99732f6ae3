"""A rectangle of the matrix of a recorded call, from what it takes of queries and keys."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int8
from torch import Tensor

from regard.attention.exact import settle
from regard.matrix.exponential import exponential_
from regard.patterns.cover import Cover, Span
from regard.recording.recorded_call import RecordedCall

_PAIRS = 2**18
"""Pairs of a strip of rows: what is written of it should stay in the cache."""

_BLOCK = 64
"""Keys that are left out together where nobody may look at them."""


@dataclass(frozen=True)
class Strip:
    """Some rows of a rectangle, with the columns that they may look at.

    Attributes:
        queries: the rows.
        keys: the columns; what lies outside of them is 0.
        weights: [queries, keys].
    """

    queries: range
    keys: range
    weights: Float[Tensor, "queries keys"]


def strips(
    call: RecordedCall, heads: range, queries: range, keys: range, multiple: int = 1
) -> Iterator[Strip]:
    """Compute a rectangle of each of some heads, some rows at a time.

    Args:
        call: the call.
        heads: which heads, one after the other.
        queries: which rows, not empty.
        keys: which columns, not empty.
        multiple: a strip has a multiple of so many rows, but for the last, and its columns begin
            and end at multiples of so many from the first.
    """
    settle()
    if call.facts.stored == "weights":
        for head in heads:
            yield Strip(queries, keys, call.weights_of(head, queries, keys).float())
        return
    rows = max(1, _PAIRS // len(keys) // multiple) * multiple
    needed = [one for one in _needed(call, queries, keys, rows, multiple) if one[1]]
    if not needed:
        return
    dtype = torch.float64 if call.facts.dtype == "float64" else torch.float32
    reach = range(min(some.start for _, some, _ in needed), max(some.stop for _, some, _ in needed))
    sharing = call.heads // call.facts.key_heads
    key = torch.empty(0)
    for head in heads:
        if head == heads.start or head % sharing == 0:
            key = call.key_of(head // sharing, reach).to(dtype)
        query = call.query_of(head, queries).to(dtype) * call.facts.scale
        lse = call.lse_of(head, queries)[:, None]
        lse = lse.masked_fill(lse == -torch.inf, 0.0)
        for part, some, doubtful in needed:
            mine = slice(part.start - queries.start, part.stop - queries.start)
            scores = query[mine] @ key[some.start - reach.start : some.stop - reach.start].T
            if call.bias is not None or doubtful:
                scores = _adjusted(call, scores, head, part, some, forbid=doubtful)
            yield Strip(part, some, exponential_(scores.sub_(lse[mine])))


def rectangle(
    call: RecordedCall, heads: range, queries: range, keys: range
) -> Float[Tensor, "queries keys"]:
    """Return all weights of a rectangle, the mean of some heads."""
    found = torch.zeros(len(queries), len(keys))
    for strip in strips(call, heads, queries, keys):
        rows = slice(strip.queries.start - queries.start, strip.queries.stop - queries.start)
        columns = slice(strip.keys.start - keys.start, strip.keys.stop - keys.start)
        found[rows, columns] += strip.weights
    return found.div_(len(heads))


def covers(
    call: RecordedCall, queries: range, keys: range, height: int, width: int
) -> Int8[Tensor, "rows columns"]:
    """Say how much of each cell of a rectangle is allowed, as `Cover` does.

    Args:
        call: the call.
        queries: the rows of the rectangle.
        keys: its columns.
        height: how many rows a cell has, but for the last.
        width: how many columns it has.
    """
    rows = call.span_of(queries, height)
    first = torch.arange(keys.start, keys.stop, width)
    last = (first + width).clamp_max(keys.stop) - 1
    shape = (len(rows.first), len(first))
    return call.pattern.cover_spans(
        torch.zeros(shape, dtype=torch.long),
        Span(*(end[:, None].expand(shape) for end in rows)),
        Span(first.expand(shape), last.expand(shape)),
    )


def _needed(
    call: RecordedCall, queries: range, keys: range, rows: int, multiple: int
) -> list[tuple[range, range, bool]]:
    """Return strips of rows, the columns that each needs, and whether some pairs are forbidden."""
    width = max(1, _BLOCK // multiple) * multiple
    codes = covers(call, queries, keys, rows, width)
    found: list[tuple[range, range, bool]] = []
    for number, code in enumerate(codes):
        start = queries.start + number * rows
        part = range(start, min(start + rows, queries.stop))
        places = (code != Cover.NONE).nonzero().flatten()
        if not len(places):
            found.append((part, range(0), False))
            continue
        low, high = int(places[0]), int(places[-1])
        some = range(keys.start + low * width, min(keys.start + (high + 1) * width, keys.stop))
        found.append((part, some, bool((code[low : high + 1] != Cover.ALL).any())))
    return found


def _adjusted(
    call: RecordedCall, scores: Tensor, head: int, queries: range, keys: range, *, forbid: bool
) -> Tensor:
    """Apply the bias, and forbid what the pattern does not allow."""
    position = call.positions_of(queries)[:, None]
    key = torch.arange(keys.start, keys.stop)[None]
    zero = torch.zeros(1, 1, dtype=torch.long)
    if call.bias is not None:
        scores = call.bias.adjust(scores, zero, torch.full_like(zero, head), position, key)
    if forbid:
        scores.masked_fill_(~call.pattern.test(zero, position, key), -torch.inf)
    return scores
