"""Strongest keys, queries and pairs of a recorded call."""

import math
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from regard.matrix.scores import Scores
from regard.matrix.source import take
from regard.matrix.tiles import tiles
from regard.recording.stored import CallArrays
from regard.recording.tiles import heads_of, part_of

Head = int | Literal["mean"]
Strongest = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]
"""The strongest keys of some rows, [rows, count], their weights, and the sum of the others."""

_MOST_PAIRS = 2**24


def top_keys(call: CallArrays, head: Head, rows: range, count: int) -> Strongest:
    """Return the strongest keys of rows; see `Recording.top_keys`."""
    return strongest(whole_rows(call, head, rows), count)


def whole_rows(call: CallArrays, head: Head, rows: range) -> Float[Tensor, "rows keys"]:
    """Return all weights of some rows.

    Raises:
        IndexError: there is no such head or row.
    """
    heads = heads_of(call, head)
    _check(call, "queries", rows)
    return _rectangle(call, heads, rows, range(call.facts.keys))


def whole_column(call: CallArrays, head: Head, key: int) -> Float[Tensor, "queries"]:
    """Return all weights of a key; raises as `whole_rows`."""
    heads = heads_of(call, head)
    _check(call, "keys", range(key, key + 1))
    return _rectangle(call, heads, range(call.facts.queries), range(key, key + 1))[:, 0]


def strongest(weights: Float[Tensor, "rows keys"], count: int) -> Strongest:
    """Return the strongest keys of rows of weights."""
    top = weights.topk(min(count, weights.shape[-1]), dim=-1)
    rest = (weights.sum(dim=-1) - top.values.sum(dim=-1)).clamp_min(0.0)
    return top.indices.numpy(), top.values.numpy(), rest.numpy()


def top_queries(
    call: CallArrays, head: Head, key: int, count: int
) -> tuple[NDArray[np.int64], NDArray[np.float32], float]:
    """Return the strongest queries of a key; see `Recording.top_queries`."""
    found = whole_column(call, head, key)
    top = found.topk(min(count, call.facts.queries))
    return top.indices.numpy(), top.values.numpy(), float(found.double().sum())


def weight(call: CallArrays, head: int, query: int, key: int) -> tuple[float, float]:
    """Return a weight and its score; see `Recording.weight`."""
    heads = heads_of(call, head)
    _check(call, "queries", range(query, query + 1))
    _check(call, "keys", range(key, key + 1))
    row = range(query, query + 1)
    found = float(_rectangle(call, heads, row, range(key, key + 1)))
    source = call.call.source
    if not isinstance(source, Scores):
        return found, math.nan
    lse = float(source.lse_of(range(1), heads, row))
    return found, math.log(found) + lse if found > 0.0 else -math.inf


def edges(
    call: CallArrays, head: Head, queries: range, keys: range, count: int
) -> tuple[list[tuple[int, int, float]], float]:
    """Return the strongest pairs of a rectangle; see `Recording.edges`."""
    _check(call, "queries", queries)
    _check(call, "keys", keys)
    if len(queries) * len(keys) > _MOST_PAIRS:
        raise ValueError(
            f"the rectangle must have at most {_MOST_PAIRS:,} pairs, got {len(queries):,} × "
            f"{len(keys):,}: zoom in"
        )
    found = _rectangle(call, heads_of(call, head), queries, keys)
    top = found.flatten().topk(min(count, found.numel()))
    listed = [
        (queries[place // len(keys)], keys[place % len(keys)], value)
        for place, value in zip(top.indices.tolist(), top.values.tolist(), strict=True)
        if value > 0.0
    ]
    return listed, max(0.0, float(found.double().sum() - top.values.double().sum()))


def _rectangle(
    call: CallArrays, heads: range, queries: range, keys: range
) -> Float[Tensor, "queries keys"]:
    """Return the weights of a rectangle, averaged over heads."""
    found = torch.zeros(len(queries), len(keys))
    with torch.no_grad():
        for tile in tiles(part_of(call, heads, queries, keys)):
            rows, weights = found[tile.queries], tile.weights.sum(dim=(0, 1)).float()
            if isinstance(tile.columns, range):
                take(rows, 1, tile.columns).add_(weights)
            else:
                rows.index_add_(1, tile.columns, weights)
    return found.div_(len(heads))


def _check(call: CallArrays, axis: Literal["queries", "keys"], places: range) -> None:
    size = call.facts.queries if axis == "queries" else call.facts.keys
    if not places or places.start < 0 or places.stop > size:
        raise IndexError(
            f"{call.call} has {axis} 0 to {size - 1}, got {places.start} to {places.stop - 1}"
        )
