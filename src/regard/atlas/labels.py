"""Labels of heads, with evidence."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from regard.atlas.figures import score_in_figures, share_in_figures
from regard.atlas.rules import FEWEST, RULES, Label, Rule

Row = Mapping[str, Any]

BESIDE = (-1, 0, 1)
"""Offsets with their own rules."""


def labels_of(
    row: Row,
    *,
    offsets: Mapping[int, float | None] | None = None,
    relations: Iterable[Row] = (),
    coreference: Iterable[Row] = (),
) -> list[Label]:
    """Return the labels of a head, in the order of `RULES`.

    Args:
        row: its row of the table of heads; missing, None or NaN is not measured.
        offsets: its share of attention at each offset.
        relations: its rows of the table of relations.
        coreference: its rows of the table of coreference.

    >>> labels_of({"previous": 0.74, "first": 0.1})
    [Label(name='previous-token', evidence='previous 0.740 ≥ 0.4')]
    """
    found: list[Label] = []
    for rule in RULES:
        if rule.measure == "relation_gain":
            found += [label for each in relations if (label := _of_relation(each, rule))]
        elif rule.measure == "coreference_gain":
            found += [label for each in coreference if (label := _of_coreference(each, rule))]
        elif rule.measure == "fixed_offset":
            found += _of_offsets(offsets or {}, rule)
        else:
            found += _of_measure(row, rule)
    return found


def label_heads(
    heads: Sequence[Row],
    offsets: Iterable[Row] = (),
    relations: Iterable[Row] = (),
    coreference: Iterable[Row] = (),
) -> list[list[Label]]:
    """Return the labels of each head.

    Args:
        heads: the table of heads.
        offsets: the table of offsets.
        relations: the table of relations.
        coreference: the table of coreference.
    """
    by_offset = offsets_of(offsets)
    related, referring = by_head(relations), by_head(coreference)
    return [
        labels_of(
            row,
            offsets=by_offset.get(place_of(row), {}),
            relations=related.get(place_of(row), ()),
            coreference=referring.get(place_of(row), ()),
        )
        for row in heads
    ]


def place_of(row: Row) -> tuple[int, int]:
    """Return the layer and the head of a row."""
    return row["layer"], row["head"]


def offsets_of(rows: Iterable[Row]) -> dict[tuple[int, int], dict[int, float]]:
    """Return the measured shares of each layer and head at each offset."""
    found: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    for row in rows:
        if (share := known(row["share"])) is not None:
            found[place_of(row)][row["offset"]] = share
    return found


def by_head(rows: Iterable[Row]) -> dict[tuple[int, int], list[Row]]:
    """Return the rows of each layer and head."""
    found: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in rows:
        found[place_of(row)].append(row)
    return found


def known(value: Any) -> float | None:
    """Return a measured number, or None."""
    return float(value) if value is not None and math.isfinite(value) else None


def relation_name(row: Row) -> str:
    """Return the name of a relation in its direction.

    >>> relation_name({"relation": "obj", "direction": "governor"})
    'obj → governor'
    >>> relation_name({"relation": "obj", "direction": "dependent"})
    'governor → obj'
    """
    name = str(row["relation"])
    return f"{name} → governor" if row["direction"] == "governor" else f"governor → {name}"


def kind_of(name: str) -> str:
    """Return the label of a name's rule."""
    return name if any(rule.label == name for rule in RULES) else "relation"


def top_offset(shares: Mapping[int, float | None]) -> tuple[int, float] | None:
    """Return the offset with the largest share, other than `BESIDE`, and its share."""
    far = [
        (known(share) or 0.0, offset) for offset, share in shares.items() if offset not in BESIDE
    ]
    share, offset = max(far, default=(0.0, 0))
    return (offset, share) if far else None


def signed(offset: int) -> str:
    """Return an offset with its sign.

    >>> signed(-2), signed(0), signed(3)
    ('−2', '0', '+3')
    """
    return f"{offset:+d}".replace("-", "−") if offset else "0"


def _of_measure(row: Row, rule: Rule) -> list[Label]:
    value = known(row.get(rule.measure))
    if value is None or value < rule.threshold:
        return []
    if rule.unless and known(row.get(rule.unless)) is not None:
        return []
    if rule.rows and (known(row.get(rule.rows)) or 0) < FEWEST:
        return []
    return [Label(rule.label, f"{rule.measure} {share_in_figures(value)} ≥ {rule.threshold:g}")]


def _of_offsets(offsets: Mapping[int, float | None], rule: Rule) -> list[Label]:
    top = top_offset(offsets)
    if top is None or top[1] < rule.threshold:
        return []
    evidence = f"offset {signed(top[0])} {share_in_figures(top[1])} ≥ {rule.threshold:g}"
    return [Label(rule.label, evidence)]


def _of_relation(row: Row, rule: Rule) -> Label | None:
    base = known(row.get("offset_score"))
    if base is None or not _beats(row, base, rule):
        return None
    against = f"against {score_in_figures(base)} at word offset {signed(int(row['offset']))}"
    return Label(relation_name(row), f"{_scored(row)}, {against}")


def _of_coreference(row: Row, rule: Rule) -> Label | None:
    bases = [known(row.get(name)) for name in ("nearest", "same_head")]
    measured = [base for base in bases if base is not None]
    if not measured or not _beats(row, max(measured), rule):
        return None
    against = f"against {score_in_figures(max(measured))} of the baseline"
    return Label(rule.label, f"{_scored(row)}, {against}")


def _beats(row: Row, base: float, rule: Rule) -> bool:
    """Return whether a head is the best of all, and significantly better than a baseline."""
    low = known(row.get("low"))
    enough = bool(row.get("best")) and (known(row.get("total")) or 0) >= FEWEST
    return enough and low is not None and low - base >= rule.threshold


def _scored(row: Row) -> str:
    score, low, high = (score_in_figures(row[name]) for name in ("score", "low", "high"))
    return f"{score} ({low} to {high}) of {int(row['total']):,}"
