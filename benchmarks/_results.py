"""What benchmarks found, kept as one file each, and read again."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._measure import Figure, as_object

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks/results"


@dataclass(frozen=True)
class Result:
    """One run of a benchmark.

    Attributes:
        command: what was run.
        date: when, as 2026-01-31.
        seconds: how long it took.
        machine: on what.
        versions: of what was measured.
        figures: what was found, by name.
    """

    command: str
    date: str
    seconds: int
    machine: str
    versions: Mapping[str, str]
    figures: Mapping[str, Figure]

    def as_text(self) -> str:
        """Return it as JSON, a line each figure, so that one sees what changed."""
        about = {name: value for name, value in vars(self).items() if name != "figures"}
        lines = ",\n".join(f"    {_line(figure)}" for figure in self.figures.values())
        head = json.dumps(about, ensure_ascii=False, indent=2).removesuffix("\n}")
        return f'{head},\n  "figures": [\n{lines}\n  ]\n}}\n'

    @classmethod
    def from_text(cls, text: str) -> "Result":
        """Read what `as_text` wrote."""
        fields = json.loads(text)
        figures = [figure_of(one) for one in fields.pop("figures")]
        return cls(**fields, figures=by_name(figures))


def figure_of(found: Mapping[str, Any]) -> Figure:
    """Return a figure that was an object in JSON."""
    value = math.nan if found["value"] is None else float(found["value"])
    words = {key: found.get(key, "") for key in ("unit", "aim", "note")}
    return Figure(found["name"], value, **words)


def by_name(figures: list[Figure]) -> dict[str, Figure]:
    """Return figures by their names.

    Raises:
        ValueError: two have the same name, so that nobody could tell which one a table shows.
    """
    names = [figure.name for figure in figures]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"names of figures must differ, got twice: {', '.join(sorted(twice))}")
    return dict(zip(names, figures, strict=True))


def keep(name: str, result: Result, folder: Path = FOLDER) -> Path:
    """Write a result where it is kept, in place of an older one, and return the file."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(result.as_text(), encoding="utf-8")
    return path


def kept(folder: Path = FOLDER) -> dict[str, Result]:
    """Return all results that are kept, by the name of their benchmark."""
    paths = sorted(folder.glob("*.json"))
    return {path.stem: Result.from_text(path.read_text(encoding="utf-8")) for path in paths}


def _line(figure: Figure) -> str:
    # More digits than these are noise.
    found = as_object(figure)
    if found["value"] is not None:
        found["value"] = float(f"{found['value']:.6g}")
    filled = {key: value for key, value in found.items() if value != ""}
    return json.dumps(filled, ensure_ascii=False)
