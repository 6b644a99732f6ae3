"""Heads in the report's format: measures, offsets, distances and labels."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from regard.atlas.labels import Row, kind_of, known, place_of, top_offset
from regard.atlas.report.measures import measures_in
from regard.atlas.report.scores import Places
from regard.atlas.rules import RULES

Shares = Mapping[tuple[int, int], Mapping[int, float]]
"""Share of attention of each layer and head at each offset, or in each bin."""


def heads_of(rows: Sequence[Row], offsets: Shares, distances: Shares) -> list[dict[str, Any]]:
    """Return all heads.

    Args:
        rows: the table of heads.
        offsets: shares at each offset.
        distances: shares in each bin of distances.
    """
    all_offsets, all_bins = keys_of(offsets), keys_of(distances)
    measures = measures_in(rows)
    return [
        {
            "layer": row["layer"],
            "head": row["head"],
            "module": str(row.get("module") or ""),
            "rows": known(row.get("rows")),
            "labels": _labels(row),
            "values": [known(row.get(measure.id)) for measure in measures],
            "offsets": _line(offsets.get(place_of(row)), all_offsets),
            "distances": _line(distances.get(place_of(row)), all_bins),
        }
        for row in rows
    ]


def keys_of(shares: Shares) -> list[int]:
    """Return all offsets or bins of any head, in order."""
    return sorted({key for each in shares.values() for key in each})


def distances_of(rows: Iterable[Row]) -> dict[tuple[int, int], dict[int, float]]:
    """Return the share of each head in each half octave of distances."""
    found: dict[tuple[int, int], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        if (share := known(row["share"])) is not None:
            found[place_of(row)][half_octave(row["nearest"])] += share
    return found


def bins_of(rows: Iterable[Row]) -> list[tuple[int, int]]:
    """Return the nearest and the farthest distance of each half octave."""
    found: dict[int, tuple[int, int]] = {}
    for row in rows:
        nearest, farthest = row["nearest"], row["farthest"]
        farthest = int(known(farthest) or nearest)
        before = found.get(half_octave(nearest), (nearest, farthest))
        found[half_octave(nearest)] = min(before[0], nearest), max(before[1], farthest)
    return [found[key] for key in sorted(found)]


def half_octave(distance: int) -> int:
    """Return the half octave of a distance: 0; 1; 2; 3; 4, 5; 6, 7; 8 to 11; ….

    >>> [half_octave(distance) for distance in (0, 1, 2, 3, 4, 5, 6, 8, 12)]
    [-1, 0, 2, 3, 4, 4, 5, 6, 7]
    """
    return math.floor(2 * math.log2(distance) + 1e-9) if distance > 0 else -1


def labels_section(heads: Sequence[Row], offsets: Shares, places: Places) -> list[dict[str, Any]]:
    """Return the rules of each label and its heads, the strongest first."""
    names = list(dict.fromkeys(rule.label for rule in RULES))
    given: dict[str, list[tuple[float, int]]] = {name: [] for name in names}
    for row in heads:
        kinds = [kind_of(name) for name in row.get("labels") or ()]
        for kind in dict.fromkeys(kinds):
            strength = _strength(kind, row, offsets, kinds.count(kind))
            given[kind].append((strength, places[place_of(row)]))
    return [
        {
            "label": name,
            "mark": next(rule.mark for rule in RULES if rule.label == name),
            "heads": [
                {"head": head, "strength": strength}
                for strength, head in sorted(given[name], key=lambda pair: (-pair[0], pair[1]))
            ],
        }
        for name in names
    ]


def _strength(kind: str, row: Row, offsets: Shares, times: int) -> float:
    """Return the sort key of a head for a label; for relations, their number."""
    for rule in RULES:
        value = known(row.get(rule.measure))
        if rule.label == kind and value is not None:
            return value
    top = top_offset(offsets.get(place_of(row), {})) if kind == "positional" else None
    return top[1] if top else float(times)


def _labels(row: Row) -> list[dict[str, str]]:
    names, evidence = list(row.get("labels") or ()), list(row.get("evidence") or ())
    evidence += [""] * (len(names) - len(evidence))
    return [
        {"name": str(name), "kind": kind_of(name), "evidence": str(words)}
        for name, words in zip(names, evidence, strict=False)
    ]


def _line(shares: Mapping[int, float] | None, keys: Sequence[int]) -> list[float | None] | None:
    return None if shares is None else [known(shares.get(key)) for key in keys]
