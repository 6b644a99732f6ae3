"""Scores on annotated text in the report's format."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from regard.atlas.labels import Row, known, place_of, relation_name, signed
from regard.atlas.report.grammar import RELATIONS

MOST = 24
"""Heads per relation in the report: the best, and those with the highest scores."""

Places = Mapping[tuple[int, int], int]
"""The number of each layer and head."""


def relations_of(rows: Iterable[Row], places: Places) -> list[dict[str, Any]]:
    """Return all relations, by `_gain`.

    Args:
        rows: the table of relations.
        places: the number of each layer and head.
    """
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[relation_name(row)].append(row)
    found = [
        _task(name, _meaning(group[0]), _offset_baseline(group[0]), group, places)
        for name, group in groups.items()
    ]
    return sorted(found, key=lambda task: -task["gain"])


def coreference_of(rows: Sequence[Row], places: Places) -> list[dict[str, Any]]:
    """Return coreference in the form of a relation; empty if it was not measured."""
    if not rows:
        return []
    names = {"nearest": "nearest mention", "same_head": "same head word, else nearest"}
    baselines = [
        {"name": words, "score": known(rows[0].get(name))}
        for name, words in names.items()
        if known(rows[0].get(name)) is not None
    ]
    meaning = "an earlier mention of the same thing"
    return [_task("coreference", meaning, baselines, rows, places)]


def _task(
    name: str, meaning: str, baselines: list[dict[str, Any]], rows: Sequence[Row], places: Places
) -> dict[str, Any]:
    """Return a relation with the scores of heads."""
    measured = [row for row in rows if known(row.get("score")) is not None]
    ranked = sorted(measured, key=lambda row: (not row.get("best"), -row["score"]))
    heads = [_scored(row, places) for row in ranked[:MOST] if place_of(row) in places]
    return {
        "name": name,
        "meaning": meaning,
        "total": int(known(rows[0].get("total")) or 0),
        "baselines": baselines,
        "gain": _gain(heads, [each["score"] for each in baselines]),
        "heads": heads,
    }


def _gain(heads: Sequence[dict[str, Any]], baselines: Sequence[float | None]) -> float:
    """Return the lower end of the best head's interval minus the best baseline."""
    measured = [score for score in baselines if score is not None]
    if not heads or heads[0]["low"] is None or not measured:
        return -1.0
    return heads[0]["low"] - max(measured)


def _scored(row: Row, places: Places) -> dict[str, Any]:
    return {
        "head": places[place_of(row)],
        "best": bool(row.get("best")),
        **{name: known(row.get(name)) for name in ("score", "low", "high")},
    }


def _offset_baseline(row: Row) -> list[dict[str, Any]]:
    score = known(row.get("offset_score"))
    if score is None:
        return []
    return [{"name": f"word at {signed(int(row['offset']))}", "score": score}]


def _meaning(row: Row) -> str:
    return RELATIONS.get(str(row["relation"]).partition(":")[0], "")
