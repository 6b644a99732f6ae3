"""Rows of tables from the counts of probes."""

from math import sqrt
from typing import Any

import numpy as np
from jaxtyping import Int
from numpy import ndarray
from numpy.typing import NDArray

from regard.atlas.probes.relations import REACH
from regard.atlas.tally import Tally

Row = dict[str, Any]

_CHOOSE, _SCORE = 0, 1
"""The splits on which heads and offsets are chosen and scored."""

_DEVIATIONS = 1.959963984540054
"""Standard deviations around the mean that contain 95 % of a normal distribution."""


def wilson(hits: int, total: int) -> tuple[float, float]:
    """Return Wilson's 95 % confidence interval of hits / total.

    All p with |hits / total − p| ≤ z · √(p · (1 − p) / total).

    Args:
        hits: number of hits.
        total: number of trials, above 0.
    """
    if not 0 <= hits <= total or total < 1:
        raise ValueError(f"hits must be from 0 to total, and total above 0, got {hits} of {total}")
    share, square = hits / total, _DEVIATIONS**2 / total
    middle = share + square / 2
    half = sqrt(square * (share * (1 - share) + square / 4))
    low, high = (middle - half) / (1 + square), (middle + half) / (1 + square)
    return (low if hits else 0.0), (high if hits < total else 1.0)


def relations_table(tally: Tally) -> list[Row]:
    """Return the score of each head on each relation.

    Heads and offsets are chosen on one half of the documents, split 0, and scored on the other,
    split 1: choosing the best of hundreds of heads on the same sentences would bias its score.

    Args:
        tally: the counts of `Relations`.

    Returns:
        a row for each relation, direction, layer (the number of the call) and head. Hits and totals
        are of split 1, or of split 0 if the name ends with `_choose`. `score` is hits / total,
        between `low` and `high` (Wilson, 95 %); `offset` is the most frequent distance in words on
        split 0, and `offset_score` its share on split 1; `best` is true for the head with the most
        hits on split 0. None without examples.
    """
    rows: list[Row] = []
    for relation, direction in sorted({_relation(name) for name in tally.sums} - {("", "")}):
        name = f"relations/{relation}/{direction}"
        about = {"relation": relation, "direction": direction}
        offset = _offset(tally, name)
        baseline = {"offset": offset, "offset_score": _offset_score(tally, name, offset)}
        rows += [about | row for row in _rows(tally, name, baseline)]
    return rows


def coreference_table(tally: Tally) -> list[Row]:
    """Return the score of each head on coreference.

    Args:
        tally: the counts of `Coreference`.

    Returns:
        rows as of `relations_table`, for each layer and head, with other baselines: `nearest`, the
        score of the nearest mention, and `same_head`, of the nearest one with the same head word if
        there is one.
    """
    total = _count(tally, "coreference", "total", _SCORE)
    baselines = {
        name: _count(tally, "coreference", name, _SCORE) / total if total else None
        for name in ("nearest", "same_head")
    }
    return list(_rows(tally, "coreference", baselines))


def _rows(tally: Tally, name: str, baselines: Row) -> list[Row]:
    """Return a row for each layer and head."""
    choose, score = (_hits(tally, name, split) for split in (_CHOOSE, _SCORE))
    totals = [_count(tally, name, "total", split) for split in (_CHOOSE, _SCORE)]
    best = np.unravel_index(choose.argmax(), choose.shape) if choose.any() else None
    rows: list[Row] = []
    for place in np.ndindex(choose.shape):
        hits = int(score[place])
        low, high = wilson(hits, totals[1]) if totals[1] else (None, None)
        row: Row = {
            "layer": place[0],
            "head": place[1],
            "hits_choose": int(choose[place]),
            "total_choose": totals[0],
            "hits": hits,
            "total": totals[1],
            "score": hits / totals[1] if totals[1] else None,
            "low": low,
            "high": high,
        }
        rows.append(row | baselines | {"best": place == best})
    return rows


def _hits(tally: Tally, name: str, split: int) -> Int[ndarray, "calls heads"]:
    """Return the hits of a split, padded to the size of both."""
    both = [tally.sums.get(f"{name}/hits/{one}") for one in (_CHOOSE, _SCORE)]
    shapes = [array.shape for array in both if array is not None] or [(0, 0)]
    hits: NDArray[np.int64] = np.zeros([max(sizes) for sizes in zip(*shapes, strict=True)], int)
    mine = both[split]
    if mine is not None:
        hits[: mine.shape[0], : mine.shape[1]] = mine
    return hits


def _count(tally: Tally, name: str, what: str, split: int) -> int:
    return int(tally.sums.get(f"{name}/{what}/{split}", 0))


def _relation(name: str) -> tuple[str, str]:
    """Return relation and direction from the name of a sum; "" without."""
    parts = name.split("/")
    return (parts[1], parts[2]) if parts[0] == "relations" and len(parts) == 5 else ("", "")


def _offset(tally: Tally, name: str) -> int | None:
    """Return the most frequent distance on split 0; of equals the shortest, backwards first."""
    counts = tally.sums.get(f"{name}/offsets/{_CHOOSE}")
    if counts is None or not counts.any():
        return None
    return min(range(-REACH, REACH + 1), key=lambda far: (-counts[far + REACH], abs(far), far))


def _offset_score(tally: Tally, name: str, offset: int | None) -> float | None:
    total = _count(tally, name, "total", _SCORE)
    if offset is None or not total:
        return None
    return int(tally.sums[f"{name}/offsets/{_SCORE}"][offset + REACH]) / total
