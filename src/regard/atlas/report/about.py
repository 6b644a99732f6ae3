"""The metadata of a report as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from regard.views.numbers import counted

ORDER = (
    "model",
    "source",
    "documents",
    "windows",
    "tokens",
    "window_length",
    "layers",
    "heads",
    "seed",
    "date",
    "versions",
)
"""Entries that come first."""


def provenance(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the metadata of a survey as pairs of strings.

    >>> provenance({"tokens": 1200000, "model": "minilm", "versions": {"torch": "2.9"}})
    [('model', 'minilm'), ('tokens', '1,200,000'), ('versions', 'torch 2.9')]
    """
    named = {str(name).replace(" ", "_"): value for name, value in about.items()}
    named.pop("skipped", None)
    order = [name for name in ORDER if name in named] + [
        name for name in named if name not in ORDER
    ]
    return [
        (name.replace("_", " "), in_words(named[name]))
        for name in order
        if named[name] is not None and named[name] != ""
    ]


def skipped(about: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return the counts of skipped items by reason, the most frequent first."""
    counts: Mapping[str, Any] = about.get("skipped") or {}
    pairs = [(str(reason), int(number)) for reason, number in counts.items()]
    return sorted(pairs, key=lambda pair: -pair[1])


def headline(about: Mapping[str, Any]) -> str:
    """Return the size of a survey in one line."""
    counts = [
        counted(about[name], name.removesuffix("s"))
        for name in ("layers", "heads", "documents", "tokens")
        if about.get(name) is not None
    ]
    source = [f"over {in_words(about['source'])}"] if about.get("source") else []
    return " · ".join([*counts, *source])


def in_words(value: Any) -> str:
    """Format any value in one line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {in_words(each)}" for name, each in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(in_words(each) for each in value)
    return str(value)
