"""`regard record`: from a text to a recording."""

from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizerFast
from typer.testing import CliRunner

import regard
from regard.cli.app import app
from tests.small import SIZES

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")

TEXT = "An apple  a day.\n\nIt is an apple."
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "an", "apple", "a", "day", "is", "it", ".")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "bert"
    torch.manual_seed(0)
    sizes = {"vocab_size": len(WORDS), "max_position_embeddings": 16, "pad_token_id": 0}
    BertModel(BertConfig(**{**SIZES, **sizes})).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS), encoding="utf-8")
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def record(*arguments: object, code: int = 0) -> str:
    """Run the command in this process; return what it said."""
    done = CliRunner().invoke(app, ["record", *(str(one) for one in arguments)])
    assert done.exit_code == code, done.stderr
    assert done.stdout == ""
    return done.stderr


def test_a_file_is_recorded(bert: Path, tmp_path: Path) -> None:
    text = tmp_path / "apples.txt"
    text.write_text(TEXT, encoding="utf-8")
    said = record(text, "-m", bert, "--out", tmp_path / "it.regard")
    assert "12 tokens, 2 calls, 8 heads, float32" in said
    assert f"regard map {tmp_path / 'it.regard'}" in said.replace("\n", "")
    found = regard.open(tmp_path / "it.regard")
    assert (found.title, found.about.model) == ("apples", "bert")
    assert found.texts[0].text == TEXT
    assert "".join(found.texts[0].pieces) == f"[CLS]{TEXT}[SEP]"
    assert found.about.versions["torch"] == torch.__version__


def test_only_some_tokens_in_half_precision(bert: Path, tmp_path: Path) -> None:
    out = tmp_path / "it.regard"
    record(TEXT, "-m", bert, "-o", out, "--tokens", 6, "--dtype", "float16", "--title", "Apples")
    found = regard.open(out)
    assert found.texts[0].text == "An apple  a day"
    assert found.title == "Apples"
    assert 0.0 < found.about.error < 1e-2


def test_faults_are_one_line(bert: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    said = record(TEXT, "-m", bert, "-o", tmp_path / "there", code=1)
    assert "exists: choose another name, or add --overwrite" in " ".join(said.split())
    said = record(TEXT, "-m", bert, "-o", tmp_path / "it.regard", "--dtype", "int8", code=2)
    assert "'int8' is not one of 'float16'" in " ".join(said.split())
    long = " ".join([TEXT] * 20)
    said = record(long, "-m", bert, "-o", tmp_path / "it.regard", "--tokens", "20", code=1)
    assert "bert takes at most 16 tokens, got 20: pass --tokens 16" in " ".join(said.split())
    said = record(TEXT, "-m", bert, "-o", tmp_path / "no" / "it.regard", code=1)
    assert "there is no folder" in " ".join(said.split())
