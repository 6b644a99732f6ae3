"""`regard attribute`."""

import json
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
    lines = run(*given, "--top", 2).splitlines()
    assert lines[0] == "answer: a violin"
    for line, one in zip(lines[3:5], ranked, strict=False):
        assert f"{one['score']:+.3f}" in line
        assert one["text"] in line
    assert "1 other passages: --top 3" in lines[-1]


def test_a_model_that_is_no_decoder_is_refused(folder: Path) -> None:
    ran = CliRunner().invoke(app, ["attribute", " ", "-m", str(folder)])
    assert ran.exit_code == 1
    assert "the prompt must be a non-empty text, got" in ran.stderr
