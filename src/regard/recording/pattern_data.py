"""Patterns as JSON and arrays."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.patterns.documents import Documents
from regard.patterns.from_mask import FromMask
from regard.patterns.global_at import GlobalAt
from regard.patterns.neighbours import Neighbours
from regard.patterns.padding import Padding
from regard.patterns.pairs import Pairs, PositionSet
from regard.patterns.pattern import Both, Either, Everyone, Not, Pattern, Span
from regard.patterns.regular import Causal, Columns, Prefix, Strided, Window
from regard.recording.errors import RecordingError
from regard.recording.schema import MOST_TOKENS

Data = dict[str, Any]

MOST_MEMBERS = 64
"""Maximum members of a pattern or a bias, nested ones included."""

_MEMBERS = ("pattern", "first", "second")
_ARRAYS = ("edges", "ids", "mask", "slopes", "table", "values")
_ARRAY = re.compile("part_[0-9]{1,3}")


def arrays_named(data: Data | None) -> list[tuple[str, str]]:
    """Return the role and the name of each array of a pattern or a bias.

    Raises:
        RecordingError: it has too many members, or an invalid array name.
    """
    found: list[tuple[str, str]] = []
    left: list[Any] = [] if data is None else [data]
    for count in range(MOST_MEMBERS + 1):
        if not left:
            return found
        one = left.pop()
        if not isinstance(one, dict) or count == MOST_MEMBERS:
            break
        left += [one[name] for name in _MEMBERS if name in one]
        for role in _ARRAYS:
            if role not in one:
                continue
            if not isinstance(one[role], str) or not _ARRAY.fullmatch(one[role]):
                raise RecordingError(f"{role} of a pattern or bias must name one of its arrays")
            found.append((role, one[role]))
    raise RecordingError(f"a pattern or bias must be an object of at most {MOST_MEMBERS} members")


UNREADABLE = (LookupError, TypeError, ValueError, ArithmeticError, RuntimeError, MemoryError)
"""The errors of an invalid description, and of arrays that are too large for the memory."""

UNKNOWN: Data = {"kind": "unknown"}
"""In place of the pattern of weights or biases of which it is unknown which pairs are masked."""


def pattern_as_data(pattern: Pattern, batch: int, store: Callable[[Tensor], str]) -> Data:
    """Describe the pattern of one sequence.

    Args:
        pattern: the pattern.
        batch: the sequence, if the pattern has a batch axis.
        store: stores a tensor, and returns its name.

    Raises:
        TypeError: the pattern is not one of Regard's.
    """
    match pattern:
        case Everyone():
            return {"kind": "everyone"}
        case Causal():
            return {"kind": "causal"}
        case Window():
            return {"kind": "window", "before": pattern.before, "after": pattern.after}
        case Strided():
            return {"kind": "strided", "stride": pattern.stride}
        case Columns():
            return {"kind": "columns", "every": pattern.every}
        case Prefix():
            return {"kind": "prefix", "length": pattern.length}
        case GlobalAt():
            return {"kind": "global_at", "positions": list(pattern.positions)}
        case Pairs():
            sides = {"queries": pattern.queries, "keys": pattern.keys}
            return {"kind": "pairs"} | {
                name: [list(span) for span in runs.spans] for name, runs in sides.items()
            }
        case Neighbours():
            return {"kind": "neighbours", "edges": store(pattern.edges)}
        case Documents():
            ids = pattern.ids[batch if pattern.batched else 0]
            return {"kind": "documents", "ids": store(ids)}
        case Padding():
            start, stop = int(pattern.starts[batch]), int(pattern.stops[batch])
            return {"kind": "padding", "start": start, "stop": stop}
        case FromMask():
            return {"kind": "given", "mask": store(pattern.mask[batch if pattern.batched else 0])}
        case Not():
            return {"kind": "not", "pattern": pattern_as_data(pattern.pattern, batch, store)}
        case Both() | Either():
            kind = "and" if isinstance(pattern, Both) else "or"
            first = pattern_as_data(pattern.first, batch, store)
            return {
                "kind": kind,
                "first": first,
                "second": pattern_as_data(pattern.second, batch, store),
            }
        case _:
            raise TypeError(
                f"pattern must be one of Regard's, got {type(pattern).__name__}: use "
                "regard.patterns.from_mask(mask)"
            )


def pattern_from_data(data: Data, read: Callable[[str], Tensor]) -> Pattern:
    """Return a described pattern.

    Args:
        data: the description.
        read: reads a stored tensor by name.

    Raises:
        RecordingError: the description is invalid.
    """
    try:
        return _from_data(data, read)
    except RecordingError:
        raise
    except UNREADABLE as error:
        raise RecordingError(f"can't read its pattern: {error!r}") from error


def _from_data(data: Data, read: Callable[[str], Tensor]) -> Pattern:
    match data["kind"]:
        case "everyone" | "unknown":
            return Everyone()
        case "causal":
            return Causal()
        case "window":
            return Window(whole(data["before"]), whole(data["after"]))
        case "strided":
            return Strided(whole(data["stride"], MOST_TOKENS))
        case "columns":
            return Columns(whole(data["every"]))
        case "prefix":
            return Prefix(whole(data["length"]))
        case "global_at":
            positions = tuple(whole(one, MOST_TOKENS) for one in data["positions"])
            if not positions or positions != tuple(sorted(set(positions))):
                raise ValueError("global_at: positions must ascend")
            return GlobalAt(positions)
        case "pairs":
            return Pairs(*(_runs(data[side]) for side in ("queries", "keys")))
        case "neighbours":
            edges = read(data["edges"]).long()
            if not len(edges) or not 0 <= int(edges.min()) <= int(edges.max()) <= MOST_TOKENS:
                raise ValueError("neighbours: edges must name positions")
            found = Neighbours(edges)
            # Sorts them, which takes several times their memory: here there is a line for it.
            node = torch.zeros(1, dtype=torch.long)
            found.cover_spans(node, Span(node, node), Span(node, node))
            return found
        case "documents":
            return Documents(read(data["ids"]).long()[None], batched=False)
        case "padding":
            start, stop = (whole(data[name], 2**63 - 1) for name in ("start", "stop"))
            return Padding(torch.tensor([start]), torch.tensor([stop]))
        case "given":
            return FromMask(read(data["mask"]).bool()[None], batched=False)
        case "not":
            return Not(_from_data(data["pattern"], read))
        case "and":
            return Both(_from_data(data["first"], read), _from_data(data["second"], read))
        case "or":
            return Either(_from_data(data["first"], read), _from_data(data["second"], read))
        case kind:
            raise RecordingError(f"unknown kind of pattern {kind!r}")


def _runs(spans: Sequence[Sequence[int]]) -> PositionSet:
    return PositionSet(tuple((position(start), position(stop)) for start, stop in spans))


def position(value: object) -> int:
    """Return a position, which may be negative; an open start of a run is −2⁶²."""
    return -whole(-value) if type(value) is int and value < 0 else whole(value)


def whole(value: object, most: int = 2**62) -> int:
    """Return an integer from 0 to `most`."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"a number must be 0 to {most}, got {str(value)[:50]}")
    return value
