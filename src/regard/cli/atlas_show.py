"""Print an atlas: heads by label, and the best heads of each relation."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.atlas.figures import score_in_figures
from regard.atlas.labels import Row, kind_of, known, place_of
from regard.atlas.report.about import headline, skipped
from regard.atlas.report.facts import Table as Rows
from regard.atlas.report.facts import facts_of
from regard.views.numbers import bar


def show(
    tables: Mapping[str, Rows], about: Mapping[str, Any], console: Console, limit: int = 5
) -> None:
    """Print the size of a survey, heads by label, and relations.

    Args:
        tables: the pyarrow tables of an atlas, by name.
        about: the survey's `about.json`.
        console: the console to print to.
        limit: number of heads per label; three times as many relations.

    Raises:
        ValueError: there are no heads.
    """
    facts = facts_of(tables, about)
    heads = sorted(tables["heads"].to_pylist(), key=place_of)
    console.print(Text(_plain(facts["title"]), style="bold"))
    console.print(Text(_plain(headline(about)), style="dim"))
    missing = [f"{reason} ({number:,})" for reason, number in skipped(about)]
    if missing:
        console.print(Text(_plain(f"skipped: {', '.join(missing)}"), style="dim"))
    console.print()
    console.print(_labels(facts["labels"], heads, limit))
    tasks = [*facts["coreference"], *facts["relations"]]
    if tasks:
        console.print()
        console.print(_tasks(tasks, heads, 3 * limit))


def _labels(groups: Sequence[Mapping[str, Any]], heads: Sequence[Row], limit: int) -> Table:
    table = _table("Heads by label")
    table.add_column("label", no_wrap=True)
    table.add_column("heads", justify="right")
    table.add_column("head", justify="right", style="bold", no_wrap=True)
    table.add_column("evidence", overflow="fold")
    given = [group for group in groups if group["heads"]]
    for group in given:
        names, counts = [group["label"]], [f"{len(group['heads']):,}"]
        chosen = [heads[one["head"]] for one in group["heads"][:limit]]
        for row, name, count in zip(chosen, _then_blank(names), _then_blank(counts), strict=False):
            evidence = _plain("; ".join(_evidence(row, group["label"])))
            table.add_row(name, count, f"{row['layer']}.{row['head']}", Text(evidence))
        rest = len(group["heads"]) - len(chosen)
        if rest:
            table.add_row("", "", "", Text(f"and {rest:,} more", style="dim"))
    if not given:
        table.add_row("none", "", "", "no head fits the rules of a label")
    return table


def _evidence(row: Row, label: str) -> Iterable[str]:
    """Yield the evidence for a label of a head, with the name of a relation."""
    for name, words in zip(row["labels"], row["evidence"], strict=True):
        if kind_of(name) == label:
            yield f"{name} {words}" if label == "relation" else words


def _tasks(tasks: Sequence[Mapping[str, Any]], heads: Sequence[Row], limit: int) -> Table:
    table = _table("Best heads on annotated text")
    table.add_column("relation", overflow="fold")
    table.add_column("head", justify="right", style="bold", no_wrap=True)
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("95 %", no_wrap=True)
    table.add_column("baseline", overflow="fold")
    table.add_column("pairs", justify="right", no_wrap=True)
    for task in tasks[:limit]:
        table.add_row(*_task(task, heads))
    if len(tasks) > limit:
        table.add_row(Text(f"and {len(tasks) - limit:,} more", style="dim"))
    return table


def _task(task: Mapping[str, Any], heads: Sequence[Row]) -> list[str | Text]:
    """Return the cells of a relation: its best head and the best baseline."""
    bases = [base for base in task["baselines"] if known(base["score"]) is not None]
    base = max(bases, key=lambda each: each["score"], default=None)
    against = "" if base is None else f"{score_in_figures(base['score'])} {base['name']}"
    name, total = Text(_plain(task["name"])), f"{task['total']:,}"
    if not task["heads"]:
        return [name, "—", "", "", "", against, total]
    best = task["heads"][0]
    row = heads[best["head"]]
    ends = [best["low"], best["high"]]
    interval = "" if None in ends else "–".join(map(score_in_figures, ends))
    place, score = f"{row['layer']}.{row['head']}", best["score"]
    drawn = Text(bar(score, 8), "cyan")
    return [name, place, score_in_figures(score), drawn, interval, against, total]


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="dim",
    )


def _then_blank(first: Sequence[str]) -> Iterable[str]:
    yield from first
    while True:
        yield ""


def _plain(text: str) -> str:
    """Replace control characters."""
    return "".join(each if each.isprintable() else "�" for each in text)
