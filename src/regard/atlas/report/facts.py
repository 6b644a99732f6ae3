"""The data of a report for the page's script; see `web/README.md`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol, runtime_checkable

from regard.atlas.labels import Row, offsets_of, place_of
from regard.atlas.report import heads as parts
from regard.atlas.report.about import headline, provenance, skipped
from regard.atlas.report.examples import example_of
from regard.atlas.report.measures import MEASURES, measures_in
from regard.atlas.report.scores import Places, coreference_of, relations_of
from regard.atlas.rules import FEWEST, MEASURES_OF_RULES, RULES

VERSION = 1
"""Version of the format."""


@runtime_checkable
class Table(Protocol):
    """A table, such as one of pyarrow."""

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return its rows."""
        ...


def facts_of(tables: Mapping[str, Table], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a report.

    Args:
        tables: the tables of an atlas, by name; all but "heads" may be missing.
        about: the survey's metadata.

    Raises:
        ValueError: there are no heads.
    """
    rows = {name: table.to_pylist() for name, table in tables.items()}
    if not rows.get("heads"):
        raise ValueError(
            f"tables must have heads, with a row for each head, got {', '.join(rows) or 'none'}"
        )
    heads = sorted(rows["heads"], key=place_of)
    places = {place_of(row): number for number, row in enumerate(heads)}
    offsets = offsets_of(rows.get("offsets", ()))
    distances = parts.distances_of(rows.get("distances", ()))
    return {
        "version": VERSION,
        "title": str(about.get("model") or "Atlas"),
        "about": headline(about),
        "measures": [asdict(measure) for measure in measures_in(heads)],
        "heads": parts.heads_of(heads, offsets, distances),
        "offsets": parts.keys_of(offsets),
        "distances": parts.bins_of(rows.get("distances", ())),
        "labels": parts.labels_section(heads, offsets, places),
        "relations": relations_of(rows.get("relations", ()), places),
        "coreference": coreference_of(rows.get("coreference", []), places),
        "examples": _examples(rows.get("examples", ()), places),
        "rules": _rules(),
        "provenance": provenance(about),
        "skipped": skipped(about),
    }


def _examples(rows: Sequence[Row], places: Places) -> list[dict[str, Any]]:
    known = [row for row in rows if place_of(row) in places]
    return [
        example_of(row, places[place_of(row)])
        for row in sorted(known, key=lambda row: (places[place_of(row)], -row["weight"]))
    ]


def _rules() -> list[dict[str, str]]:
    """Return all rules as text."""
    found: list[dict[str, str]] = []
    names = {measure.id: measure.name for measure in MEASURES} | MEASURES_OF_RULES
    for rule in RULES:
        words = f"{names[rule.measure]} ≥ {rule.threshold:g}"
        if rule.unless:
            words += f", if {names[rule.unless]} was not measured"
        if rule.rows:
            words += f", over at least {FEWEST} rows"
        if rule.label in ("relation", "coreference"):
            words += f", over at least {FEWEST} pairs"
        found.append({"label": rule.label, "rule": words, "meaning": rule.meaning})
    return found
