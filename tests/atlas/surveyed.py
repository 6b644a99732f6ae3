"""A small survey, made by hand: two layers of three heads."""

from collections.abc import Callable
from typing import Any

import pyarrow

from regard.atlas.labels import label_heads

Tables = dict[str, list[dict[str, Any]]]

MEASURES = [
    "entropy",
    "effective_keys",
    "distance_mean",
    "distance_p10",
    "distance_p25",
    "distance_p50",
    "distance_p75",
    "distance_p90",
    "itself",
    "previous",
    "next",
    "first",
    "separators",
    "punctuation",
    "same_token",
    "induction",
    "repeats_induction",
    "sink_first",
    "sinks",
    "received_top",
]

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "שלום עולם \u202e reversed",
    "👩‍👩‍👧 fox 🦊 and\nlines\tand\u200b nothing",
    "a" * 600,
)


def head_row(layer: int, head: int, **known: Any) -> dict[str, Any]:
    """Return a row of the table of heads; what is not said is small."""
    row: dict[str, Any] = {"layer": layer, "head": head, "module": f"layers.{layer}.attention"}
    row |= {"rows": 12_345, "same_token_rows": 500, "induction_rows": 400}
    row |= dict.fromkeys(MEASURES, 0.01 * (1 + layer + head))
    return row | {"repeats_induction": None} | known


def relation_row(layer: int, head: int, score: float, **known: Any) -> dict[str, Any]:
    row = {"relation": "obj", "direction": "governor", "layer": layer, "head": head}
    row |= {"hits_choose": 0, "total_choose": 400, "hits": round(400 * score), "total": 400}
    row |= {"score": score, "low": score - 0.05, "high": score + 0.05}
    return row | {"offset": -2, "offset_score": 0.4, "best": False} | known


def coreference_row(layer: int, head: int, score: float, **known: Any) -> dict[str, Any]:
    row = relation_row(layer, head, score)
    for name in ("relation", "direction", "offset", "offset_score"):
        del row[name]
    return row | {"nearest": 0.3, "same_head": 0.5} | known


def example_row(layer: int, head: int, text: str, query: str, key: str) -> dict[str, Any]:
    start, other = text.index(query), text.index(key)
    row = {
        "layer": layer,
        "head": head,
        "weight": 0.9,
        "document": "books/moby.txt#3",
        "text": text,
    }
    row |= {"query_start": start, "query_end": start + len(query)}
    return row | {"key_start": other, "key_end": other + len(key)}


def rows(change: Callable[[Tables], None] = lambda _: None) -> Tables:
    """Return the rows of all tables, with labels.

    Args:
        change: changes what was measured, before labels are given.
    """
    heads = [head_row(layer, head) for layer in range(2) for head in range(3)]
    heads[1] |= {"previous": 0.74, "entropy": 1.5}
    heads[2] |= {"first": 0.9, "sink_first": 0.97, "next": None}
    heads[5] |= {"induction": 0.35}
    places = [(row["layer"], row["head"]) for row in heads]
    offsets = [
        {"layer": layer, "head": head, "offset": offset, "share": 0.5 if offset == -head else 0.01}
        for layer, head in places
        for offset in range(-16, 17)
    ]
    distances = [
        {"layer": layer, "head": head, "nearest": near, "farthest": far, "share": share}
        for layer, head in places
        for near, far, share in ((0, 0, 0.1), (1, 1, 0.4), (2, 2, 0.2), (3, 3, 0.1), (4, 4, 0.1))
    ]
    distances += [{**row, "nearest": 5, "farthest": 5, "share": 0.1} for row in distances[::5]]
    relations = [relation_row(*place, 0.1 + 0.1 * at) for at, place in enumerate(places)]
    relations[4] |= {"score": 0.8, "low": 0.75, "high": 0.85, "best": True}
    coreference = [coreference_row(*place, 0.2) for place in places]
    coreference[3] |= {"score": 0.7, "low": 0.65, "high": 0.75, "best": True}
    examples = [example_row(0, 1, "The animal was too tired.", "tired", "animal")]
    examples += [example_row(0, 1, text, text[2:9], text[10:14]) for text in HOSTILE]
    tables = {"heads": heads, "offsets": offsets, "distances": distances}
    tables |= {"relations": relations, "coreference": coreference, "examples": examples}
    change(tables)
    for row, labels in zip(heads, label_heads(heads, offsets, relations, coreference), strict=True):
        row["labels"] = [label.name for label in labels]
        row["evidence"] = [label.evidence for label in labels]
    return tables


def tables(*names: str) -> dict[str, pyarrow.Table]:
    """Return tables, all of them if none is named."""
    return as_arrow({name: made for name, made in rows().items() if name in (names or [name])})


def as_arrow(made: Tables) -> dict[str, pyarrow.Table]:
    return {name: pyarrow.Table.from_pylist(some) for name, some in made.items()}


def hard_to_round(made: Tables) -> None:
    """Change numbers to some that are printed otherwise if they are cut, or rounded twice."""
    made["heads"][1] |= {"previous": 0.62449}
    next(row for row in made["offsets"] if (row["head"], row["offset"]) == (2, -2))["share"] = (
        0.4275
    )
    made["relations"][4] |= {"score": 0.625, "low": 0.57496, "high": 0.67504}
    for row in made["relations"]:
        row["offset_score"] = 0.375


PRINTED = {"previous": "0.624", "offset": "0.427", "score": "0.63", "ends": ("0.57", "0.68")}
"""How these numbers are printed, wherever they are; 0.4275 is a little less than that."""


ABOUT = {
    "model": "a/model<b>",
    "source": "books/",
    "documents": 3,
    "tokens": 1_234_567,
    "windows": 1_300,
    "layers": 2,
    "heads": 6,
    "window length": 1024,
    "versions": {"torch": "2.9.0"},
    "skipped": {"not UTF-8": 1, "sentence longer than the window": 12},
}
