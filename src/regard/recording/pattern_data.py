"""Patterns as data: what JSON can hold, and arrays beside it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.patterns.causal import Causal
from regard.patterns.columns import Columns
from regard.patterns.documents import Documents
from regard.patterns.from_mask import FromMask
from regard.patterns.global_at import GlobalAt
from regard.patterns.neighbours import Neighbours
from regard.patterns.padding import Padding
from regard.patterns.pairs import Pairs, Runs
from regard.patterns.pattern import Both, Either, Everyone, Not, Pattern
from regard.patterns.prefix import Prefix
from regard.patterns.strided import Strided
from regard.patterns.window import Window
from regard.recording.errors import RecordingError

Data = dict[str, Any]


def pattern_as_data(pattern: Pattern, batch: int, store: Callable[[Tensor], str]) -> Data:
    """Describe a pattern as it is for one sequence.

    Args:
        pattern: the pattern.
        batch: which sequence, where the pattern tells sequences apart.
        store: stores a tensor, and returns the name under which it can be read.

    Raises:
        TypeError: the pattern is none of Regard's own.
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
                f"a recording can hold Regard's own patterns, got {type(pattern).__name__}: write "
                "it down with regard.patterns.from_mask(mask)"
            )


def pattern_from_data(data: Data, read: Callable[[str], Tensor]) -> Pattern:
    """Return the pattern that was described.

    Args:
        data: the description.
        read: reads a tensor by the name under which it was stored.

    Raises:
        RecordingError: it describes nothing.
    """
    try:
        return _from_data(data, read)
    except RecordingError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        raise RecordingError(f"its pattern can't be read: {error!r}") from error


def _from_data(data: Data, read: Callable[[str], Tensor]) -> Pattern:
    match data["kind"]:
        case "everyone":
            return Everyone()
        case "causal":
            return Causal()
        case "window":
            return Window(int(data["before"]), int(data["after"]))
        case "strided":
            return Strided(int(data["stride"]))
        case "columns":
            return Columns(int(data["every"]))
        case "prefix":
            return Prefix(int(data["length"]))
        case "global_at":
            return GlobalAt(tuple(int(position) for position in data["positions"]))
        case "pairs":
            return Pairs(*(_runs(data[side]) for side in ("queries", "keys")))
        case "neighbours":
            return Neighbours(read(data["edges"]).long())
        case "documents":
            return Documents(read(data["ids"]).long()[None], batched=False)
        case "padding":
            start, stop = torch.tensor([int(data["start"])]), torch.tensor([int(data["stop"])])
            return Padding(start, stop)
        case "given":
            return FromMask(read(data["mask"]).bool()[None], batched=False)
        case "not":
            return Not(_from_data(data["pattern"], read))
        case "and":
            return Both(_from_data(data["first"], read), _from_data(data["second"], read))
        case "or":
            return Either(_from_data(data["first"], read), _from_data(data["second"], read))
        case kind:
            raise RecordingError(f"it has a pattern of a kind that is not known: {kind!r}")


def _runs(spans: Sequence[Sequence[int]]) -> Runs:
    return Runs(tuple((int(start), int(stop)) for start, stop in spans))
