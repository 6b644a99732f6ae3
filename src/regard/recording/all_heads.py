"""The mean over all heads of all calls.

A head takes milliseconds, and the hundreds of heads of a model seconds. So each function is a
generator that yields after each call, to be interleaved with other work or cancelled.
"""

from collections.abc import Generator, Sequence
from typing import TypeVar

import numpy as np
import torch

from regard.recording import lookup, tiles
from regard.recording.schema import TILE
from regard.recording.stored import CallArrays

Found = TypeVar("Found")
Steps = Generator[None, None, Found]
"""A computation that yields between its steps."""


def tile(calls: Sequence[CallArrays], level: int, x: int, y: int, pool: str) -> Steps[tiles.Tile]:
    """Compute a tile; see `Recording.tile`."""
    total = np.zeros((TILE, TILE))
    known = np.zeros((TILE, TILE), dtype=bool)
    for call in calls:
        found = tiles.tile(call, "mean", level, x, y, pool)
        known |= ~np.isnan(found)
        total += call.facts.heads * np.nan_to_num(found)
        yield
    mean = total / sum(call.facts.heads for call in calls)
    return np.where(known, mean, np.nan).astype(np.float32)


def top_keys(calls: Sequence[CallArrays], rows: range, count: int) -> Steps[lookup.Strongest]:
    """Compute the strongest keys of rows; see `Recording.top_keys`."""
    total = torch.zeros(len(rows), calls[0].facts.keys)
    for call in calls:
        total.add_(lookup.whole_rows(call, "mean", rows), alpha=call.facts.heads)
        yield
    return lookup.strongest(total.div_(sum(call.facts.heads for call in calls)), count)


def finished(steps: Steps[Found]) -> Found:
    """Run a computation to its end, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
