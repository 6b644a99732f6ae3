"""Rows, columns and the strongest pairs of a recorded call."""

import math
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from regard.recording.recorded_call import RecordedCall
from regard.recording.rectangle import rectangle
from regard.recording.tiles import heads_of

Head = int | Literal["mean"]
Strongest = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]
"""The strongest keys of some rows, [rows, count], their weights, and that of all others."""

_MOST_PAIRS = 2**24


def top_keys(call: RecordedCall, head: Head, rows: range, count: int) -> Strongest:
    """Return the strongest keys of rows; see `Recording.top_keys`."""
    return strongest(whole_rows(call, head, rows), count)


def whole_rows(call: RecordedCall, head: Head, rows: range) -> Float[Tensor, "rows keys"]:
    """Return all weights of some rows.

    Raises:
        IndexError: there is no such head or row.
    """
    heads = heads_of(call, head)
    _check(call, "queries", rows)
    return rectangle(call, heads, rows, range(call.keys))


def strongest(weights: Float[Tensor, "rows keys"], count: int) -> Strongest:
    """Return the strongest keys of rows whose weights are known."""
    top = weights.topk(min(count, weights.shape[-1]), dim=-1)
    rest = (weights.sum(dim=-1) - top.values.sum(dim=-1)).clamp_min(0.0)
    return top.indices.numpy(), top.values.numpy(), rest.numpy()


def top_queries(
    call: RecordedCall, head: Head, key: int, count: int
) -> tuple[NDArray[np.int64], NDArray[np.float32], float]:
    """Return the strongest queries of a key; see `Recording.top_queries`."""
    _check(call, "keys", range(key, key + 1))
    heads = heads_of(call, head)
    found = rectangle(call, heads, range(call.queries), range(key, key + 1))[:, 0]
    top = found.topk(min(count, call.queries))
    return top.indices.numpy(), top.values.numpy(), float(found.double().sum())


def weight(call: RecordedCall, head: int, query: int, key: int) -> tuple[float, float]:
    """Return a weight and its score; see `Recording.weight`."""
    heads = heads_of(call, head)
    _check(call, "queries", range(query, query + 1))
    _check(call, "keys", range(key, key + 1))
    row = range(query, query + 1)
    found = float(rectangle(call, heads, row, range(key, key + 1)))
    if call.facts.stored == "weights":
        return found, math.nan
    lse = float(call.lse_of(head, row))
    return found, math.log(found) + lse if found > 0.0 else -math.inf


def edges(
    call: RecordedCall, head: Head, queries: range, keys: range, count: int
) -> tuple[list[tuple[int, int, float]], float]:
    """Return the strongest pairs of a rectangle; see `Recording.edges`."""
    _check(call, "queries", queries)
    _check(call, "keys", keys)
    if len(queries) * len(keys) > _MOST_PAIRS:
        raise ValueError(
            f"{len(queries):,} × {len(keys):,} pairs are too many to look for the strongest, up to "
            f"{_MOST_PAIRS:,} are searched: zoom in"
        )
    found = rectangle(call, heads_of(call, head), queries, keys)
    top = found.flatten().topk(min(count, found.numel()))
    listed = [
        (queries.start + place // len(keys), keys.start + place % len(keys), value)
        for place, value in zip(top.indices.tolist(), top.values.tolist(), strict=True)
        if value > 0.0
    ]
    return listed, max(0.0, float(found.double().sum() - top.values.double().sum()))


def _check(call: RecordedCall, axis: Literal["queries", "keys"], places: range) -> None:
    size = call.queries if axis == "queries" else call.keys
    if not places or places.start < 0 or places.stop > size:
        raise IndexError(
            f"{call} has {axis} 0 to {size - 1}, got {places.start} to {places.stop - 1}"
        )
