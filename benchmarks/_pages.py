"""Write what was found into the pages that show it."""

import ast
import math
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

from benchmarks import BENCHMARKS
from benchmarks._measure import Figure
from benchmarks._results import ROOT, Result
from benchmarks._tables import TABLES, Table, filled

WIDTH = 120
_PLACES = re.compile(
    r"<!-- benchmarks(?::(?P<table>[\w-]+))? -->\n(?P<body>.*?)<!-- end -->", re.DOTALL
)


def pages() -> list[Path]:
    """Return the pages on which results are shown."""
    found = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    return [page for page in found if "<!-- benchmarks" in page.read_text(encoding="utf-8")]


def write(results: Mapping[str, Result]) -> list[Path]:
    """Write results into all pages, and return those that changed."""
    changed: list[Path] = []
    for page in pages():
        before = page.read_text(encoding="utf-8")
        try:
            after = written(before, results)
        except ValueError as error:
            raise ValueError(f"{page.relative_to(ROOT)}: {error}") from error
        if after != before:
            page.write_text(after, encoding="utf-8")
            changed.append(page)
    return changed


def written(text: str, results: Mapping[str, Result]) -> str:
    """Return a page with tables made anew.

    From `<!-- benchmarks:NAME -->` to `<!-- end -->` there is a table, which is left as it is if
    its benchmark has no result; from `<!-- benchmarks -->` to `<!-- end -->` there are all figures
    of all results.

    Raises:
        ValueError: a place has no end, there is no such table, or no such figure.
    """
    whole = [found.start() for found in _PLACES.finditer(text)]
    begun = [found.start() for found in re.finditer("<!-- benchmarks", text)]
    if lost := sorted(set(begun) - set(whole)):
        line = 1 + text.count("\n", 0, lost[0])
        raise ValueError(f"what begins in line {line} for benchmarks has no end of its own")

    def made(place: re.Match[str]) -> str:
        first = place[0].split("\n", 1)[0]
        name = place["table"]
        if name is None:
            body = "\n\n".join(section(one, results[one]) for one in BENCHMARKS if one in results)
            return f"{first}\n\n{body}\n\n<!-- end -->" if body else f"{first}\n<!-- end -->"
        if name not in TABLES:
            raise ValueError(f"table must be one of {', '.join(TABLES)}, got {name}")
        table = TABLES[name]
        if not set(table.benchmarks) <= set(results):
            return place[0]
        return f"{first}\n\n{table_text(table, results)}\n\n<!-- end -->"

    return _PLACES.sub(made, text)


def table_text(table: Table, results: Mapping[str, Result]) -> str:
    """Return a table in Markdown, what is said below it, and where it was measured.

    Of several benchmarks, `docs/reference/benchmarks.md` says where each was.
    """
    figures: dict[str, Figure] = {}
    for name in table.benchmarks:
        figures |= results[name].figures
    rows = [[filled(cell, figures) for cell in row] for row in table.rows]
    said = [_wrapped(filled(table.words, figures))] if table.words else []
    if len(table.benchmarks) == 1:
        said.append(_wrapped(measured(results[table.benchmarks[0]])))
    return "\n\n".join([_markdown(table.head, rows), *said])


def section(name: str, result: Result) -> str:
    """Return all that a benchmark found, and what it says of itself."""
    rows = [_row(figure) for figure in result.figures.values()]
    took = f"It took {max(1, round(result.seconds / 60))} min."
    parts = [f"## {name}", about(name), _wrapped(f"{measured(result)} {took}")]
    picture = BENCHMARKS[name]
    if picture is not None:
        title = about(name).split("\n")[0]
        parts.append(f"![{title}](../{Path(picture).relative_to('docs').as_posix()})")
    return "\n\n".join([*parts, _markdown(("name", "value", "aim", "reached"), rows)])


def about(name: str) -> str:
    """Return what a benchmark says of itself. It is read, not imported: that would take long."""
    source = (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(source)) or ""


def measured(result: Result) -> str:
    """Say when, on what and with which versions a result was measured."""
    # torch says "+cpu" behind its number.
    found = (f"{name} {version.split('+')[0]}" for name, version in result.versions.items())
    return f"Measured on {result.date}: {result.machine}; {', '.join(found)}."


def _row(figure: Figure) -> list[str]:
    value = "—" if math.isnan(figure.value) else f"{_number(figure.value)} {figure.unit}".strip()
    if figure.note:
        value += f" ({figure.note})"
    verdict = {None: "", True: "yes", False: "**no**"}[figure.reached]
    return [figure.name, value, figure.aim, verdict]


def _number(value: float) -> str:
    """Return four digits, and no power of ten where it isn't needed."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _markdown(head: tuple[str, ...], rows: list[list[str]]) -> str:
    cells = [[cell.replace("|", r"\|") for cell in line] for line in (head, *rows)]
    first, *others = ["| " + "".join(f"{cell} | ".lstrip() for cell in line) for line in cells]
    return "\n".join(line.rstrip() for line in (first, "|---" * len(head) + "|", *others))


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
