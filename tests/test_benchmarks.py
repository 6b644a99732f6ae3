"""The benchmarks run as they are printed, say what they found in JSON, and pages show it."""

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import BENCHMARKS, _pages, _results
from benchmarks import __main__ as command
from benchmarks._measure import Figure, OutOfMemory, in_child, interleaved
from benchmarks._pages import written
from benchmarks._passages import KINDS, planted
from benchmarks._results import Result, by_name
from benchmarks._tables import TABLES, Table, filled, names_in, spoken
from benchmarks.attribute import digest, figures, peer_figures, quality_figures

ROOT = Path(__file__).parents[1]
PLACE = "before\n<!-- benchmarks:{} -->\n\nas it was\n\n<!-- end -->\nafter\n"


def result(*figures: Figure) -> Result:
    return Result(
        command="python -m benchmarks.attend --json",
        date="2026-01-31",
        seconds=130,
        machine="a processor, 2 threads",
        versions={"Python": "3.11.7", "torch": "2.13.0+cpu"},
        figures=by_name(list(figures)),
    )


def cells(table: Table) -> list[str]:
    return [*table.head, *(cell for row in table.rows for cell in row), table.words]


def filling(table: Table) -> Result:
    """Return a result that has every figure of a table."""
    names = dict.fromkeys(name for cell in cells(table) for name in names_in(cell))
    return result(*(Figure(name, 2.5 + number, "s") for number, name in enumerate(names)))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A README and a folder of results, in the place of ours."""
    (tmp_path / "README.md").write_text(PLACE.format("matrix"), "utf-8")
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(_pages, "ROOT", tmp_path)
    folder = tmp_path / "results"
    keep, kept = _results.keep, _results.kept
    monkeypatch.setattr(_results, "keep", lambda name, found: keep(name, found, folder))
    monkeypatch.setattr(_results, "kept", lambda: kept(folder))
    return tmp_path


@pytest.fixture
def printing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let benchmarks be programs that print these lines, and end with an exit code."""
    programs: dict[str, list[str]] = {}

    def prints(name: str, *lines: Any, code: int = 0) -> None:
        said = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        programs[name] = ["-c", f"import sys; print({chr(10).join(said)!r}); sys.exit({code})"]

    monkeypatch.setattr(command, "command", lambda name: programs[name])
    return prints


ABOUT = {"machine": "a processor", "versions": {"torch": "2.13.0"}}
TILE = {"name": "a tile", "value": 0.5, "unit": "s", "aim": "≤ 1", "note": "", "reached": True}


@pytest.mark.parametrize("code", ["raise MemoryError", "import torch; torch.empty(2**50)"])
def test_what_needs_too_much_memory_is_told_from_what_fails(code: str) -> None:
    with pytest.raises(OutOfMemory):
        in_child(code)


def test_what_fails_otherwise_does_not_count_as_too_large() -> None:
    with pytest.raises(RuntimeError, match="wrong") as failed:
        in_child("raise ValueError('wrong')")
    assert not isinstance(failed.value, OutOfMemory)


def test_pages_show_what_is_kept() -> None:
    results = _results.kept()
    pages = _pages.pages()
    assert {page.relative_to(ROOT).as_posix() for page in pages} >= {
        "README.md",
        "docs/reference/benchmarks.md",
    }
    for page in pages:
        text = page.read_text("utf-8")
        assert written(text, results) == text, "python -m benchmarks --write"


def test_results_are_of_benchmarks_and_as_they_are_written() -> None:
    for path in _results.FOLDER.glob("*.json"):
        assert path.stem in BENCHMARKS
        text = path.read_text("utf-8")
        assert Result.from_text(text).as_text() == text


def test_every_benchmark_is_run_and_its_picture_there() -> None:
    files = {path.stem for path in (ROOT / "benchmarks").glob("[a-z]*.py")}
    # This compares two trees, and keeps nothing.
    assert set(BENCHMARKS) == files - {"against"}
    for name, picture in BENCHMARKS.items():
        assert f"python -m benchmarks.{name} [--json]" in _pages.about(name)
        assert picture is None or (ROOT / picture).is_file()
        assert ("--figure" in _pages.about(name)) == (picture is not None)


def test_every_table_is_shown_once() -> None:
    text = "".join(page.read_text("utf-8") for page in _pages.pages())
    assert sorted(re.findall(r"<!-- benchmarks:(\w+) -->", text)) == sorted(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_table_has_its_figures_and_no_names(name: str) -> None:
    table = TABLES[name]
    assert set(table.benchmarks) <= set(BENCHMARKS)
    found = filling(table)
    text = written(PLACE.format(name), dict.fromkeys(table.benchmarks, found))
    assert "as it was" not in text
    assert text.startswith(f"before\n<!-- benchmarks:{name} -->\n\n| ")
    assert text.endswith("\n\n<!-- end -->\nafter\n")
    alone = len(table.benchmarks) == 1
    measured = "Measured on 2026-01-31: a processor, 2 threads; Python 3.11.7, torch 2.13.0."
    assert (measured in text) == alone
    assert not re.search(r"\[[^\]]*\]", text)
    rows = [line for line in text.split("\n") if line.startswith("|")]
    assert len(rows) == len(table.rows) + 2
    assert {line.count("|") for line in rows} == {len(table.head) + 1}
    # To write it again changes nothing, and to write it anew all.
    assert written(text, dict.fromkeys(table.benchmarks, found)) == text
    later = dict.fromkeys(table.benchmarks, replace(found, date="2026-02-01"))
    assert ("2026-02-01" in written(text, later)) == alone


def test_table_without_results_is_left_as_it_is() -> None:
    text = PLACE.format("matrix") + PLACE.format("watch")
    some = written(text, {"watch": filling(TABLES["watch"])})
    assert some.startswith(PLACE.format("matrix"))
    assert some.count("as it was") == 1
    assert written(text, {}) == text


def test_all_figures_of_all_results_with_what_was_missed() -> None:
    found = result(
        Figure("a: time", 1.04, "×", "≤ 1.03"),
        Figure("b: time", 123456.0, "s", "≥ 5", "of 5"),
        Figure("c|d: size", math.nan, "MB", note="no memory left"),
    )
    text = written("<!-- benchmarks -->\n<!-- end -->\n", {"memory": found, "attend": found})
    assert text.index("## attend") < text.index("## memory")
    assert "    python -m benchmarks.attend [--json]" in text
    assert "torch 2.13.0. It took 2 min." in text
    assert text.count("](../images/memory.svg)") == 1
    assert "| a: time | 1.04 × | ≤ 1.03 | **no** |\n" in text
    assert "| b: time | 123,456 s (of 5) | ≥ 5 | yes |\n" in text
    assert "| c\\|d: size | — (no memory left) | | |\n" in text
    assert written(text, {"attend": found}).count("\n## ") == 1
    assert written(text, {}) == "<!-- benchmarks -->\n<!-- end -->\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("one\n<!-- benchmarks:matrix -->\n", "begins in line 2 for benchmarks has no end"),
        (
            "<!-- benchmarks:matrix -->\n<!-- benchmarks:watch -->\n<!-- end -->\n",
            "begins in line 2 for benchmarks has no end",
        ),
        (PLACE.format("speed"), "table must be one of readme, attend, .*, got speed"),
        (PLACE.format("matrix"), "no figure is called 'five summaries .*; there are: a tile"),
    ],
)
def test_what_can_not_be_written_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        written(text, {"matrix": result(Figure("a tile", 1.0, "s"))})


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (16.42, "×", "16 ×"),
        (1.0371, "×", "1.04 ×"),
        (0.9182, "×", "0.92 ×"),
        (1.5, "s", "1.5 s"),
        (316.2, "s", "316 s"),
        (0.0362, "s", "36 ms"),
        (1320.0, "ms", "1.3 s"),
        (0.0091, "GB", "9.1 MB"),
        (17179.0, "MB", "17 GB"),
        (0.0, "", "0"),
        (2345.0, "", "2,345"),
    ],
)
def test_values_are_said_with_two_digits(value: float, unit: str, words: str) -> None:
    assert spoken(Figure("it", value, unit)) == words


def test_cells_have_values_ranges_and_reasons() -> None:
    figures = result(
        Figure("a", 0.5, "s"),
        Figure("b", 0.021, "s"),
        Figure("c", 0.031, "s"),
        Figure("d", math.nan, "s", note="more than 12 GB of memory"),
    ).figures
    assert filled("[a] in all", figures) == "0.50 s in all"
    assert filled("[c | b]", figures) == "21–31 ms"
    assert filled("[a | b | c]", figures) == "21 ms–0.50 s"
    assert filled("[a | a]", figures) == "0.50 s"
    assert filled("[d], [a | d]", figures) == "more than 12 GB of memory, more than 12 GB of memory"


def test_result_as_text_is_a_line_a_figure() -> None:
    found = result(
        Figure("one", 1 / 3, "×", "≤ 1.03"), Figure("two", math.nan, "", note="none was made")
    )
    text = found.as_text()
    assert text.split("\n")[-5:-1] == [
        '    {"name": "one", "value": 0.333333, "unit": "×", "aim": "≤ 1.03"},',
        '    {"name": "two", "value": null, "note": "none was made"}',
        "  ]",
        "}",
    ]
    again = Result.from_text(text)
    assert again.as_text() == text
    assert again.versions == found.versions
    assert again.figures["one"].reached is True


def test_figures_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match="names of figures must differ, got twice: it"):
        result(Figure("it", 1.0, "s"), Figure("it", 2.0, "s"))


def test_command_runs_keeps_and_writes(
    project: Path,
    printing: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    table = Table("matrix", ("", "time"), (("a tile takes", "[a tile]"),))
    monkeypatch.setitem(TABLES, "matrix", table)
    printing("matrix", ABOUT, "a library says hello", TILE)
    assert command.main(["matrix"]) == 0
    kept = Result.from_text((project / "results/matrix.json").read_text("utf-8"))
    assert kept.figures["a tile"] == Figure("a tile", 0.5, "s", "≤ 1")
    assert kept.machine == "a processor"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", kept.date)
    assert "| a tile takes | 0.50 s |" in (project / "README.md").read_text("utf-8")
    said = capfd.readouterr()
    assert re.search(r"a processor; torch 2.13.0\na tile +0.5 s +≤ 1 +reached", said.out)
    assert "kept in results/matrix.json" in said.out
    assert "written: README.md" in said.out
    assert said.err == "a library says hello\n"


@pytest.mark.parametrize(
    ("lines", "code", "reason"),
    [
        ([ABOUT, TILE], 3, "exit code 3"),
        ([ABOUT], 0, "it printed no figures"),
        ([ABOUT, TILE, TILE], 0, "names of figures must differ"),
    ],
)
def test_one_that_fails_keeps_what_it_had(
    project: Path,
    printing: Callable[..., None],
    capfd: pytest.CaptureFixture[str],
    lines: list[Any],
    code: int,
    reason: str,
) -> None:
    before = filling(TABLES["matrix"])
    _results.keep("matrix", before)
    printing("matrix", *lines, code=code)
    printing("memory", ABOUT, TILE)
    assert command.main(["matrix", "memory"]) == 1
    folder = project / "results"
    assert (folder / "matrix.json").read_text("utf-8") == before.as_text()
    assert (folder / "memory.json").exists()
    assert "Measured on 2026-01-31" in (project / "README.md").read_text("utf-8")
    said = capfd.readouterr().err
    assert f"matrix failed: {reason}" in said
    assert said.endswith("failed: matrix\n")


def test_only_writing_runs_nothing(project: Path, printing: Callable[..., None]) -> None:
    _results.keep("matrix", filling(TABLES["matrix"]))
    assert command.main(["--write"]) == 0
    assert "Measured on 2026-01-31" in (project / "README.md").read_text("utf-8")


def test_tables_that_can_not_be_written_are_a_failure(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _results.keep("matrix", result(Figure("a tile", 1.0, "s")))
    assert command.main(["--write"]) == 1
    assert "README.md: no figure is called" in capfd.readouterr().err
    assert (project / "README.md").read_text("utf-8") == PLACE.format("matrix")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nobody"], "NAME must be one of attend, .*, got nobody"),
        (["--write", "attend"], "--write runs no benchmark, so it takes no NAME"),
    ],
)
def test_command_refuses(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main(arguments)
    assert stopped.value.code == 2
    assert re.search(message, capsys.readouterr().err)


def test_command_of_a_benchmark_draws_its_picture() -> None:
    assert command.command("attend") == ["-m", "benchmarks.attend", "--json"]
    assert command.command("memory")[-2:] == ["--figure", "docs/images/memory.svg"]


def test_interleaved_runs_all_in_turn() -> None:
    ran: list[str] = []
    found = interleaved(2, one=lambda: ran.append("one"), other=lambda: ran.append("other"))
    assert set(found) == {"one", "other"}
    assert all(0 <= seconds < 1 for seconds in found.values())
    assert ran[:4] == ["one", "other"] * 2
    turns = [name for name, before in zip(ran, ["", *ran], strict=False) if name != before]
    assert turns == ["one", "other"] * 4


@pytest.mark.slow
def test_attend_over_a_million_positions() -> None:
    arguments = ["-m", "benchmarks.attend", "--only", "million", "--json"]
    finished = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True
    )
    about, seconds, memory = map(json.loads, finished.stdout.splitlines())
    assert set(about) == {"machine", "versions"}
    assert {"Python", "torch", "local-attention"} <= set(about["versions"])
    assert (seconds["unit"], memory["unit"]) == ("s", "GB")
    # The inputs alone are 0.8 GB, and the output 0.27 GB: a process that held less saw nothing.
    assert 0.2 < memory["value"] < 4
    assert memory["reached"] is True


class TestAttribute:
    def row(self, effects: list[float], **others: Any) -> dict[str, Any]:
        truth = [0.1, 2.0, 0.5, -0.1]
        drops = {"effects": [1.8, 2.0, 2.0], "leave-one-out": [2.0, 2.5, 2.5]}
        seconds = {"effects": 15.0, "attention": 10.0, "gradient × input": 10.0, "forward": 5.0}
        return {
            "planted": 1,
            "truth": truth,
            "scores": {"effects": effects},
            "drops": drops,
            "cpu_seconds": seconds,
            **others,
        }

    def test_quality_is_counted_where_leaving_out_finds_the_fact(self) -> None:
        rows = [
            self.row([0.0, 3.0, 1.0, -1.0]),
            self.row([3.0, 0.0, -1.0, 1.0]),
            self.row([3.0, 0.0, 0.0, 0.0], truth=[9.0, 2.0, 1.0, 0.5]),
        ]
        found = {figure.name: figure for figure in quality_figures("short", rows)}
        first = found["short, effects: fact first"]
        assert (first.value, first.reached) == (0.5, False)
        assert first.note == "3 prompts; leave-one-out has the fact first in 2"
        assert found["short, top 1 of effects, loss over best"].value == pytest.approx(0.9)
        assert found["short, top 3 of effects, loss over best"].value == pytest.approx(0.8)
        assert found["short, attention: cost in forward passes"].value == pytest.approx(2.0)

    def test_cost_is_that_of_processes_of_their_own(self) -> None:
        rows = [{"scores": [0.0], "passes": passes, "memory": 1e9} for passes in (3.0, 5.5)]
        for name, reached in (("Regard", False), ("flashtrace", None)):
            found = {figure.name: figure for figure in peer_figures(name, "short", [*rows, {}])}
            cost = found[f"short, {name}: cost in forward passes"]
            assert (cost.value, cost.reached) == (4.25, reached)
            assert cost.note == "2 prompts, by time of the CPU"

    @pytest.mark.slow
    def test_rows_are_kept_and_read_by_part_and_prompt(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.jsonl"
        kind, row = KINDS[0], self.row([0.0, 3.0, 1.0, -1.0])
        known = [digest(planted(kind, number)) for number in range(3)]
        rows = [
            {"part": "quality", "kind": kind.name, "prompt": prompt} | row
            for prompt in [*known, "another"]
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        (first, *_) = figures("quality", KINDS[:2], path, 2)
        assert first.note.startswith("2 prompts;")
        assert list(figures("datamodel", KINDS[:2], path, 2)) == []

    @pytest.mark.slow
    def test_each_passage_is_once_in_its_prompt(self) -> None:
        for kind in KINDS:
            made = planted(kind, 0)
            assert made == planted(kind, 0)
            assert len(made.passages) == kind.passages
            assert all(made.text.count(passage) == 1 for passage in made.passages)
            assert made.answer.strip() in made.passages[made.planted]


@pytest.mark.slow
def test_two_trees_are_compared_call_by_call() -> None:
    arguments = ["-m", "benchmarks.against", str(ROOT), "--only", "attend, a step", "--rounds", "2"]
    run = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    row = run.stdout.splitlines()[-1]
    assert row.startswith("attend, a step")
    ratios = [float(number) for number in row.split()[-2:]]
    assert all(0.1 < ratio < 10 for ratio in ratios)
