"""`regard atlas`: from a corpus to an atlas."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import regard.atlas
from regard.cli.app import app
from tests.atlas.surveying import sentences, small_model

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")


def atlas(*arguments: object, code: int = 0) -> str:
    """Run the command in this process; return what it said."""
    done = CliRunner().invoke(app, ["atlas", *(str(one) for one in arguments)])
    assert done.exit_code == code, done.stderr
    return done.stderr.replace("\n", " ")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n".join(sentences(3)), encoding="utf-8")
    return path


def test_a_text_is_surveyed(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_model(tmp_path / "small")
    monkeypatch.chdir(tmp_path)
    said = atlas("text.txt", "-m", "small", "--out", "it.atlas", "--length", 64)
    assert "regard atlas show it.atlas" in said
    found = regard.atlas.open(tmp_path / "it.atlas")
    assert found.about.model == "small"
    assert found.about.documents == 1


def test_another_model_of_that_name_does_not_continue_a_survey(text: Path, tmp_path: Path) -> None:
    for folder, kind in (("a", "encoder"), ("b", "decoder")):
        small_model(tmp_path / folder / "model", kind)
    out = tmp_path / "it.atlas"
    atlas(text, "-m", tmp_path / "a" / "model", "--out", out, "--length", 64)
    said = atlas(text, "-m", tmp_path / "b" / "model", "--out", out, "--length", 64, code=1)
    assert "has another survey: model" in said
