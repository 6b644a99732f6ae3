"""`regard attribute`."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli.app import app
from tests.attribution.models import decoder, tokenizer

PROMPT = "The sea was calm .\nHarriet bought a violin .\nwhat did Harriet buy ?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("models") / "decoder"
    decoder().save_pretrained(found)
    tokenizer().save_pretrained(found)
    return found


def run(*words: object) -> str:
    ran = CliRunner().invoke(app, ["attribute", *map(str, words)])
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def test_passages_are_ranked(folder: Path, tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text(PROMPT, encoding="utf-8")
    given = (prompt, "-m", folder, "--answer", "a violin", "--passages", "lines")
    found = json.loads(run(*given, "--verify", 1, "--json"))
    assert (found["answer"], found["how"]) == ("a violin", "effects")
    assert [one["text"] for one in found["passages"]] == PROMPT.split("\n")
    for one in found["passages"]:
        assert PROMPT[one["start"] : one["stop"]] == one["text"]
    assert sum(one["exact"] is not None for one in found["passages"]) == 2
    ranked = sorted(found["passages"], key=lambda one: -one["score"])
    # The strongest of either sign.
    ranked = [ranked[0], ranked[-1]]
    lines = run(*given, "--top", 2).splitlines()
    assert lines[0] == "answer: a violin"
    for line, one in zip(lines[3:5], ranked, strict=False):
        assert f"{one['score']:+.3f}" in line
        assert one["text"] in line
    assert re.search(r"1 other passage, [+-]\d\.\d{3}: --top 3", lines[-1])


def test_a_page_is_saved(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "used.html"
    given = (PROMPT, "-m", folder, "--answer", "a violin", "--passages", "lines", "--verify", 1)
    found = json.loads(run(*given, "--each-token", "--save", path, "--json"))
    page = path.read_text("utf-8")
    element = r'<script type="application/json" id="regard-attribution">(.*?)</script>'
    facts = json.loads(re.findall(element, page)[0])
    assert facts["about"] == "decoder · 3 passages · 15 tokens"
    for name, values in (("score", facts["scores"]), ("exact", facts["exact"])):
        expected = [one[name] for one in found["passages"]]
        assert values == [value and pytest.approx(value, rel=1e-8) for value in expected]
    assert len(facts["by_token"]) == 2


def test_a_page_needs_an_ending_and_a_folder(folder: Path, tmp_path: Path) -> None:
    for path, words in (
        (tmp_path / "used.png", ".html"),
        (tmp_path / "a" / "b.html", "needs an existing folder"),
    ):
        ran = CliRunner().invoke(app, ["attribute", PROMPT, "-m", str(folder), "-s", str(path)])
        assert ran.exit_code == 1
        assert words in ran.stderr


def test_a_model_that_is_no_decoder_is_refused(folder: Path) -> None:
    ran = CliRunner().invoke(app, ["attribute", " ", "-m", str(folder)])
    assert ran.exit_code == 1
    assert "the prompt must be a non-empty text, got" in ran.stderr
