"""From what probes counted to rows of tables."""

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
"""On which split a head or an offset is chosen, and on which it is scored."""

_DEVIATIONS = 1.959963984540054
"""So many standard deviations around the mean hold 95 % of a normal distribution."""


def wilson(hits: int, total: int) -> tuple[float, float]:
    """Return Wilson's interval for a share, which holds the true one in 95 of 100 cases.

    It is where |hits / total − p| is at most z · √(p · (1 − p) / total).

    Args:
        hits: how many were right.
        total: of how many, above 0.
    """
    if not 0 <= hits <= total or total < 1:
        raise ValueError(f"hits must lie between 0 and total above 0, got {hits} of {total}")
    share, square = hits / total, _DEVIATIONS**2 / total
    middle = share + square / 2
    half = sqrt(square * (share * (1 - share) + square / 4))
    low, high = (middle - half) / (1 + square), (middle + half) / (1 + square)
    return (low if hits else 0.0), (high if hits < total else 1.0)


def relations_table(tally: Tally) -> list[Row]:
    """Return how well each head knows each relation.

    Heads and offsets are chosen on one half of the documents, split 0, and scored on the other:
    the best of hundreds of heads on the same sentences would be a matter of luck.

    Args:
        tally: what `Relations` counted.

    Returns:
        a row for each relation, direction, layer (the number of the call) and head. Hits and totals
        are of split 1, and of split 0 where the name ends on `_choose`. `score` is hits / total,
        between `low` and `high` (Wilson, 95 %); `offset` is the distance in words that was most
        frequent on split 0, and `offset_score` its share on split 1; `best` is true for the head
        with most hits on split 0. What can't be said, for lack of examples, is None.
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
    """Return how well each head knows who was named before.

    Args:
        tally: what `Coreference` counted.

    Returns:
        rows as those of `relations_table`, for each layer and head, but with other baselines: the
        score of whoever takes the nearest mention, `nearest`, or the nearest one with the same
        head word if there is one, `same_head`.
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
    """Return hits of a split, of the same size for both: one may have seen fewer calls."""
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
    """Return relation and direction of the name of a sum; empty ones if it has none."""
    parts = name.split("/")
    return (parts[1], parts[2]) if parts[0] == "relations" and len(parts) == 5 else ("", "")


def _offset(tally: Tally, name: str) -> int | None:
    """Return the most frequent distance on split 0; of several the shortest, backwards first."""
    counts = tally.sums.get(f"{name}/offsets/{_CHOOSE}")
    if counts is None or not counts.any():
        return None
    return min(range(-REACH, REACH + 1), key=lambda far: (-counts[far + REACH], abs(far), far))


def _offset_score(tally: Tally, name: str, offset: int | None) -> float | None:
    total = _count(tally, name, "total", _SCORE)
    if offset is None or not total:
        return None
    return int(tally.sums[f"{name}/offsets/{_SCORE}"][offset + REACH]) / total
