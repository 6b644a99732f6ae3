"""What heads score on annotated text, as the report holds it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from regard.atlas.labels import Row, known, place_of, relation_name, signed
from regard.atlas.report.grammar import RELATIONS

MOST = 24
"""So many heads of a relation are in the report: the best, and those that score most."""

Places = Mapping[tuple[int, int], int]
"""Which number each layer and head has."""


def relations_of(rows: Iterable[Row], places: Places) -> list[dict[str, Any]]:
    """Return all relations, those first whose baseline a head beats by most beyond doubt.

    Args:
        rows: the table of relations.
        places: which number each layer and head has.
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
    """Return coreference, in the form of a relation; nothing if it was not measured."""
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
    """Return something that heads can be good at, and how good they are."""
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
    """Return by how much the best head beats the best baseline beyond doubt.

    By the lower end of its interval: all of two pairs found is less than most of a thousand.
    """
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
