"""What comes from files of others is printed without what a terminal obeys, and fits into UTF-8."""

import io
import json
import os
import sys
from pathlib import Path

import pytest
import torch
import typer
from rich.table import Table
from rich.text import Text

import regard
from regard import AttentionMatrix
from regard.atlas.units import find_units, into_shards
from regard.cli import console
from regard.printable import printable, well_formed
from regard.server.info import info, recordings

HOSTILE = "a\x1b]0;owned\x07\x9b31m\rb\u202ec\x00\x7fd"


def test_control_characters_are_replaced() -> None:
    assert printable(HOSTILE) == "a\ufffd]0;owned\ufffd\ufffd31m\ufffdb\ufffdc\ufffd\ufffdd"
    assert printable("two\nlines\tand é 🦜 \u200d") == "two\nlines\tand é 🦜 \u200d"


@pytest.mark.parametrize("code", [0xD800, 0xDCFF, 0xDFFF])
def test_halves_of_characters_are_replaced(code: int) -> None:
    half = chr(code)
    assert well_formed(f"a{half}b") == printable(f"a{half}b") == "a\ufffdb"


def test_nothing_that_is_printed_has_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = Table(title=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(Text(HOSTILE))
    out = console.console(file=sys.stdout)
    out.print(HOSTILE, markup=False)
    out.print(Text(HOSTILE), style="bold")
    out.print(table)
    console.tell(HOSTILE)
    console.print_json({"a": HOSTILE})
    printed = "".join(capsys.readouterr())
    assert printed.count("owned") >= 6
    assert not any(one in printed for one in "\x1b\x07\x9b\r\u202e\x00")


def test_colours_of_our_own_stay() -> None:
    out = console.console(file=io.StringIO(), force_terminal=True, color_system="standard")
    with out.capture() as capture:
        out.print(Text("a\x1b[31mb", style="bold"))
    assert capture.get() == "\x1b[1ma\ufffd[31mb\x1b[0m\n"


def test_errors_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    @console.one_line_errors
    def fails() -> None:
        raise ValueError(HOSTILE)

    with pytest.raises(typer.Exit):
        fails()
    said = capsys.readouterr().err
    assert said.startswith("error: a\ufffd]0;owned")
    assert "\x1b" not in said


def test_a_recording_of_names_that_are_no_utf_8(tmp_path: Path) -> None:
    x = torch.randn(1, 1, 5, 4)
    path = tmp_path / os.fsdecode(b"b\xff.regard")
    sections = [(0, "\ud800")]
    found = regard.save(
        AttentionMatrix(x, x), path, tokens=["\ud800"] * 5, model="\udcff", sections=sections
    )
    assert (found.title, found.about.model) == ("b\ufffd", "\ufffd")
    listed = json.loads(recordings([found], live=True).to_bytes())["recordings"]
    assert listed[0]["name"] == listed[0]["title"] == "b\ufffd"
    assert json.loads(info(found).to_bytes())["sections"][0]["title"] == "\ufffd"


def test_a_corpus_of_names_that_are_no_utf_8(tmp_path: Path) -> None:
    for name in (b"a\xff.txt", b"a\xfe.txt"):
        (tmp_path / os.fsdecode(name)).write_text("text")
    units = find_units(tmp_path)
    assert [unit.name for unit in units] == ["a\ufffd.txt"] * 2
    assert len({shard.id.partition("-")[2] for shard in into_shards(units, 2)}) == 2
