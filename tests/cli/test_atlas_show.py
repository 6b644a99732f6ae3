"""An atlas in the terminal: what is told, and that it fits."""

import io

import pytest
from rich.console import Console

from regard.cli.atlas_show import show
from tests.atlas.surveyed import ABOUT, PRINTED, as_arrow, hard_to_round, rows, tables


def shown(width: int = 80, limit: int = 5, about: dict[str, object] = ABOUT, *names: str) -> str:
    file = io.StringIO()
    show(tables(*names), about, Console(file=file, width=width, highlight=False), limit)
    return file.getvalue()


def test_tells_the_survey_the_labels_and_the_relations() -> None:
    words = shown()
    lines = [" ".join(line.split()) for line in words.splitlines()]
    assert lines[0] == "a/model<b>"
    assert lines[1] == "2 layers · 6 heads · 3 documents · 1,234,567 tokens · over books/"
    assert lines[2] == "skipped: sentence longer than the window (12), not UTF-8 (1)"
    assert "previous-token 1 0.1 previous 0.740 ≥ 0.4" in lines
    assert "obj → governor 1.1 0.80 ██████▍ 0.75–0.85 0.40 word at −2 400" in lines


def test_numbers_are_rounded_as_in_the_report() -> None:
    file = io.StringIO()
    made = as_arrow(rows(hard_to_round))
    show(made, ABOUT, Console(file=file, width=120, highlight=False))
    lines = [" ".join(line.split()) for line in file.getvalue().splitlines()]
    low, high = PRINTED["ends"]
    assert f"previous-token 1 0.1 previous {PRINTED['previous']} ≥ 0.4" in lines
    assert any(f"offset −2 {PRINTED['offset']} ≥ 0.3" in line for line in lines)
    (relation,) = (line for line in lines if line.startswith("obj → governor"))
    assert f" {PRINTED['score']} " in relation
    assert f" {low}–{high} 0.38 word at −2 " in relation
    assert any(
        f"{PRINTED['score']} ({low} to {high}) of 400, against 0.38" in line for line in lines
    )


@pytest.mark.parametrize("width", [60, 80, 120])
def test_fits(width: int) -> None:
    words = shown(width)
    assert max(len(line) for line in words.splitlines()) <= width
    # Folded, perhaps, but whole.
    assert "…" not in words


def test_only_so_many_heads() -> None:
    lines = [" ".join(line.split()) for line in shown(limit=1).splitlines()]
    assert lines.count("and 1 more") == 1


def test_a_terminal_is_not_told_what_to_do() -> None:
    words = shown(about={**ABOUT, "model": "a\x1b[2Jb[bold]c", "skipped": {"\x07": 1}})
    assert "\x1b" not in words
    assert "\x07" not in words
    assert "a�[2Jb[bold]c" in words


def test_heads_are_enough() -> None:
    assert "annotated" not in shown(80, 5, {}, "heads")
    assert rows()["heads"][0]["labels"] == []
