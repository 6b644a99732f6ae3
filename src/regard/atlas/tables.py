"""Tables from sums."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.atlas.extra import needed
from regard.atlas.head_statistics import REACH, distance_edges
from regard.atlas.labels import label_heads
from regard.atlas.probes.scores import coreference_table, relations_table
from regard.atlas.tally import Tally

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
Rows = list[dict[str, Any]]


def tables(tally: Tally) -> dict[str, Rows]:
    """Return the rows of each table of an atlas.

    Args:
        tally: the sums over a whole corpus.
    """
    found = {
        "heads": _heads(tally),
        "offsets": _offsets(tally),
        "distances": _distances(tally),
        "relations": relations_table(tally),
        "coreference": coreference_table(tally),
        "examples": tally.examples.rows(),
    }
    # Layers may have different numbers of heads; missing ones have no mass.
    there = set(zip(*np.nonzero(tally.sums["mass"]), strict=True))
    found = {
        name: [row for row in rows if (row["layer"], row["head"]) in there]
        for name, rows in found.items()
    }
    labels = label_heads(
        *(found[name] for name in ("heads", "offsets", "relations", "coreference"))
    )
    for row, named in zip(found["heads"], labels, strict=True):
        row["labels"] = [label.name for label in named]
        row["evidence"] = [label.evidence for label in named]
    return found


def as_arrow(tally: Tally) -> dict[str, Any]:
    """Return the pyarrow tables of an atlas."""
    arrow = needed("pyarrow")
    return {
        name: arrow.Table.from_pylist(
            rows,
            schema=arrow.schema(
                [(column, _kind(arrow, kind)) for column, kind in SCHEMA[name].items()]
            ),
        )
        for name, rows in tables(tally).items()
    }


_PLACE = {"layer": "int", "head": "int"}
_SCORED = {
    "hits_choose": "int",
    "total_choose": "int",
    "hits": "int",
    "total": "int",
} | dict.fromkeys(("score", "low", "high"), "float")
SCHEMA: dict[str, dict[str, str]] = {
    "heads": {**_PLACE, "module": "text", "rows": "int"}
    | dict.fromkeys(
        (
            "entropy",
            "effective_keys",
            "distance_mean",
            *(f"distance_p{round(100 * share)}" for share in QUANTILES),
            "itself",
            "previous",
            "next",
            "first",
            "separators",
            "punctuation",
            "same_token",
        ),
        "float",
    )
    | {"same_token_rows": "int", "induction": "float", "induction_rows": "int"}
    | dict.fromkeys(("repeats_induction", "sink_first", "sinks", "received_top", "effect"), "float")
    | {"labels": "texts", "evidence": "texts"},
    "offsets": {**_PLACE, "offset": "int", "share": "float"},
    "distances": {**_PLACE, "nearest": "int", "farthest": "int", "share": "float"},
    "relations": {"relation": "text", "direction": "text", **_PLACE, **_SCORED}
    | {"offset": "int", "offset_score": "float", "best": "flag"},
    "coreference": {**_PLACE, **_SCORED, "nearest": "float", "same_head": "float", "best": "flag"},
    "examples": {**_PLACE, "weight": "float", "document": "text", "text": "text"}
    | dict.fromkeys(("query_start", "query_end", "key_start", "key_end"), "int"),
}
"""The columns of each table and their types. Null is not measured."""


def _kind(arrow: Any, kind: str) -> Any:
    text = arrow.string()
    kinds = {"int": arrow.int64(), "float": arrow.float64(), "text": text, "flag": arrow.bool_()}
    return arrow.list_(text) if kind == "texts" else kinds[kind]


def _heads(tally: Tally) -> Rows:
    sums = tally.sums
    rows, windows = int(sums["rows"]), int(sums["windows"])
    near, totals = sums["near"], sums["near_rows"]
    columns: dict[str, NDArray[Any]] = {
        "entropy": _mean(sums["entropy"], rows),
        "effective_keys": _mean(sums["effective"], rows),
        "distance_mean": _mean(sums["distance"], sums["mass"]),
        **_quantiles(sums["far"]),
        "itself": _mean(near[..., REACH], totals[REACH]),
        "previous": _mean(near[..., REACH - 1], totals[REACH - 1]),
        "next": _mean(near[..., REACH + 1], totals[REACH + 1]),
        "first": _mean(sums["first"], rows - windows),
        "separators": _mean(sums["separators"], rows),
        "punctuation": _mean(sums["punctuation"], rows),
        "same_token": _mean(sums["same"], sums["same_rows"]),
        "induction": _mean(sums["after"], sums["after_rows"]),
        "sink_first": _mean(sums["first_sinks"], sums["sink_windows"]),
        "sinks": _mean(sums["sinks"], sums["sink_windows"]),
        "received_top": _mean(sums["top"], sums["sink_windows"]),
    }
    if "repeats/after" in sums:
        columns["repeats_induction"] = _mean(sums["repeats/after"], sums["repeats/after_rows"])
    if "effect" in sums:
        columns["effect"] = _mean(sums["effect"], sums["effect_windows"])
    counts = {
        "rows": rows,
        "same_token_rows": int(sums["same_rows"]),
        "induction_rows": int(sums["after_rows"]),
    }
    found: Rows = []
    for layer, head in np.ndindex(*sums["entropy"].shape):
        figures = {name: _figure(values[layer, head]) for name, values in columns.items()}
        place = {"layer": layer, "head": head, "module": tally.modules[layer]}
        found.append(place | counts | figures)
    return found


def _offsets(tally: Tally) -> Rows:
    shares = _mean(tally.sums["near"], tally.sums["near_rows"])
    return [
        {"layer": layer, "head": head, "offset": place - REACH, "share": _figure(share)}
        for (layer, head, place), share in np.ndenumerate(shares)
    ]


def _distances(tally: Tally) -> Rows:
    shares = _mean(tally.sums["far"], tally.sums["mass"][..., None])
    edges = _edges(shares.shape[2])
    return [
        {
            "layer": layer,
            "head": head,
            "nearest": edges[place],
            "farthest": edges[place + 1] - 1,
            "share": _figure(share),
        }
        for (layer, head, place), share in np.ndenumerate(shares)
    ]


def _edges(bins: int) -> list[int]:
    """Return the edges of bins of distances."""
    longest = 64
    while len(edges := distance_edges(longest)) <= bins:
        longest *= 2
    return edges[: bins + 1]


def _quantiles(far: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the quantiles of distances: the upper end of their bins."""
    farthest = np.array(_edges(far.shape[2]))[1:] - 1.0
    so_far = _mean(far.cumsum(axis=2), far.sum(axis=2, keepdims=True))
    found: dict[str, NDArray[Any]] = {}
    for share in QUANTILES:
        # Tolerance, so that rounding does not move an exact share to the next bin.
        bins = (so_far < share - 1e-12).sum(axis=2).clip(max=far.shape[2] - 1)
        values = np.where(np.isnan(so_far[..., -1]), np.nan, farthest[bins])
        found[f"distance_p{round(100 * share)}"] = values
    return found


def _mean(sums: NDArray[Any], count: Any) -> NDArray[Any]:
    """Return sums divided by counts; NaN for a count of 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.asarray(count) > 0, sums / count, np.nan)


def _figure(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)
