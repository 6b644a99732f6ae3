"""Surveys that meet broken files, or that are killed: they go on, and say what happened."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regard.atlas import Atlas, Loader, survey
from regard.atlas.tally import Tally
from tests.atlas.surveying import (
    annotated,
    assert_alike,
    book,
    exact,
    many_files,
    sentences,
    small_model,
)

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("one_thread", "quiet_transformers")]

FILES = 6


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return many_files(tmp_path_factory.mktemp("files") / "corpus", FILES, size=150)


@pytest.fixture(scope="module")
def undisturbed(corpus: Path, loader: Loader, tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    out = tmp_path_factory.mktemp("undisturbed") / "a.atlas"
    return survey(corpus, out, loader, length=64, shards=FILES)


def watched(loader: Loader) -> tuple[Loader, list[int]]:
    """Return a loader whose model writes down how many windows it is given."""
    seen: list[int] = []

    def model() -> Any:
        made = loader.model()
        made.register_forward_pre_hook(
            lambda module, args, kwargs: seen.append(len(kwargs["input_ids"])), with_kwargs=True
        )
        return made

    return replace(loader, model=model), seen


def test_files_that_are_wrong_are_left_out_and_counted(
    corpus: Path, loader: Loader, undisturbed: Atlas, tmp_path: Path
) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for path in corpus.iterdir():
        # In the same order as without all others.
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "damaged.parquet").write_bytes(b"PAR1 and nothing more")
    (folder / "nowhere.txt").symlink_to(folder / "absent")
    (folder / "empty.txt").write_bytes(b"")
    (folder / "blank.txt").write_bytes(b" \n\n ")
    (folder / "folder.txt").mkdir()
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / "records.jsonl").write_text('{"text": 1}\n{"text": ""}\n{"tex\n', encoding="utf-8")
    (folder / "malformed.conllu").write_text("1\tonly\ttwo\n\n", encoding="utf-8")
    found = survey(folder, tmp_path / "a.atlas", loader, length=64, shards=4)
    skipped = {reason.partition(" (")[0]: count for reason, count in found.about.skipped.items()}
    assert skipped == {
        "empty document": 3,
        "line that is no JSON": 1,
        "malformed sentence": 1,
        "record without text": 1,
        "unreadable: damaged.parquet": 1,
        "unreadable: nowhere.txt": 1,
    }
    for name in ("heads", "offsets", "distances"):
        columns = ["entropy", "first"] if name == "heads" else ["share"]
        for column in columns:
            values, expected = (one.frame(name)[column] for one in (found, undisturbed))
            assert values.to_list() == pytest.approx(expected.to_list(), rel=1e-9, nan_ok=True)
    assert found.about.documents == undisturbed.about.documents


def test_bytes_that_are_no_text_are_read_as_far_as_possible(loader: Loader, tmp_path: Path) -> None:
    content = sentences(1)[0].encode() + b" \xff\xfe " + bytes(range(256)) * 3
    (tmp_path / "a.txt").write_bytes(content)
    (tmp_path / "b.jsonl").write_bytes(rb'{"text": "half a character \ud800"}')
    found = survey(tmp_path, tmp_path / "a.atlas", loader, length=64)
    assert found.about.documents == 2
    replaced = content.decode("utf-8", "replace").count("\ufffd")
    assert found.about.skipped == {"characters that are no UTF-8": replaced + 1}


def test_what_is_longer_than_a_window_is_cut_and_counted(loader: Loader, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text(book(50_000, 500), encoding="utf-8")
    (tmp_path / "short.txt").write_text("A few words.", encoding="utf-8")
    (tmp_path / "sentences.conllu").write_text(annotated("en_ewt-ud-dev", 4), encoding="utf-8")
    found = survey(tmp_path, tmp_path / "a.atlas", loader, length=20)
    tokenizer = loader.tokenizer()
    assert found.about.documents_cut == 1
    lines = (tmp_path / "sentences.conllu").read_text("utf-8").split("\n")
    texts = [line.removeprefix("# text = ") for line in lines if line.startswith("# text = ")]
    sizes = [len(tokenizer(text)["input_ids"]) for text in texts]
    too_long = sum(size > 20 for size in sizes)
    assert 0 < too_long < len(sizes)
    assert found.about.skipped == {"sentence longer than the window": too_long}
    # All tokens are there: cut documents have two special tokens more for each window more.
    inside = len(tokenizer(book(50_000, 500), add_special_tokens=False)["input_ids"])
    long_windows = -(-inside // 18)
    short = len(tokenizer("A few words.")["input_ids"])
    kept = [size for size in sizes if size <= 20]
    assert found.about.windows == long_windows + 1 + len(kept)
    assert found.about.tokens == inside + 2 * long_windows + short + sum(kept)


def test_a_source_without_any_text_says_what_was_left_out(loader: Loader, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    with pytest.raises(FileNotFoundError, match="does not exist: pass"):
        survey(source, tmp_path / "a.atlas", loader)
    (source / "a.pdf").write_bytes(b"")
    with pytest.raises(ValueError, match="must have files with one of the suffixes"):
        survey(source, tmp_path / "a.atlas", loader)
    assert not (tmp_path / "a.atlas").exists()
    (source / "a.txt").write_bytes(b"")
    for number in range(12):
        (source / f"{number:02d}.parquet").write_bytes(b"")
    with pytest.raises(ValueError, match=r"has no text; skipped: ") as raised:
        survey(source, tmp_path / "b.atlas", loader)
    assert str(raised.value).endswith(", and 4 more")
    assert "unreadable: 00.parquet" in str(raised.value)


def test_a_finished_survey_is_not_made_again(
    corpus: Path, loader: Loader, undisturbed: Atlas
) -> None:
    broken = replace(loader, model=lambda: pytest.fail("the model was loaded"))
    before = {path: path.stat().st_mtime_ns for path in undisturbed.path.iterdir()}
    again = survey(corpus, undisturbed.path, broken, length=64, shards=FILES)
    assert again.about == undisturbed.about
    assert {path: path.stat().st_mtime_ns for path in undisturbed.path.iterdir()} == before


@pytest.mark.parametrize(
    "other",
    [{"length": 32}, {"seed": 1}, {"sample": 0.5}, {"field": "body"}, {"shards": 2}],
    ids=str,
)
def test_another_survey_in_the_folder_is_left_alone(
    corpus: Path, loader: Loader, undisturbed: Atlas, other: dict[str, Any]
) -> None:
    arguments: dict[str, Any] = {"length": 64, "shards": FILES} | other
    with pytest.raises(ValueError, match=r"has another survey: .* or choose another folder"):
        survey(corpus, undisturbed.path, loader, **arguments)


def test_another_model_of_the_same_name_is_another_survey(
    corpus: Path, model: Path, undisturbed: Atlas, tmp_path: Path
) -> None:
    other = small_model(tmp_path / model.name, "decoder")
    with pytest.raises(ValueError, match="has another survey"):
        survey(corpus, undisturbed.path, exact(other), length=64, shards=FILES)
    with pytest.raises(ValueError, match="has another survey"):
        # In float32.
        survey(corpus, undisturbed.path, str(model), length=64, shards=FILES)


@pytest.mark.parametrize("name", ["to-mother.txt", "film.partial", ".film.partial"])
def test_folders_with_other_things_are_left_alone(
    corpus: Path, loader: Loader, tmp_path: Path, name: str
) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / name).write_text("Dear", encoding="utf-8")
    with pytest.raises(ValueError, match="has other files: choose another folder"):
        survey(corpus, tmp_path / "letters", loader)
    with pytest.raises(ValueError, match=r"out must be a folder, got the file"):
        survey(corpus, tmp_path / "letters" / name, loader)
    assert [path.name for path in (tmp_path / "letters").iterdir()] == [name]


KILLED = """
import os, signal, sys

import torch

from regard.atlas import pretrained, survey
import importlib, shutil

module = importlib.import_module("regard.atlas.survey")
where, source, out, model = sys.argv[1:]


def die(*args, **options):
    os.kill(os.getpid(), signal.SIGKILL)


keep, kept = module.keep, []
if where == "counting":

    def keep_and_die(path, data):
        keep(path, data)
        if path.suffix == ".npz":
            kept.append(path)
        if len(kept) == 3:
            die()

    module.keep = keep_and_die
elif where == "saving":

    def die_in_keeping(path, data):
        if path.suffix == ".npz":
            os.fsync = die
        keep(path, data)

    module.keep = die_in_keeping
elif where == "planning":
    from pathlib import Path

    Path.replace = die
elif where == "tables":
    module.report = die
elif where == "removing":
    shutil.rmtree = die
survey(source, out, pretrained(model, dtype=torch.float64), length=64, shards=6)
"""
"""A survey that is killed by the system at a certain place: nothing can be tidied up."""


def killed(where: str, corpus: Path, model: Path, out: Path) -> Path:
    """Start a survey that is killed, and return what it leaves."""
    arguments = [where, str(corpus), str(out), str(model)]
    finished = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True
    )
    assert finished.returncode == -signal.SIGKILL, finished.stderr
    return out


@pytest.fixture(scope="module")
def killed_while_counting(
    corpus: Path, model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return killed("counting", corpus, model, tmp_path_factory.mktemp("killed") / "a.atlas")


@pytest.fixture
def begun(killed_while_counting: Path, tmp_path: Path) -> Path:
    """Return what a survey leaves that is killed when half of it is counted."""
    return shutil.copytree(killed_while_counting, tmp_path / "a.atlas")


def continued(corpus: Path, loader: Loader, out: Path) -> tuple[Atlas, int]:
    """Start a survey again; return it, and how many windows the model was given."""
    watching, seen = watched(loader)
    found = survey(corpus, out, watching, length=64, shards=FILES)
    # One window of two tokens asks whether the model is causal.
    return found, sum(seen) - bool(seen)


def test_a_survey_killed_while_counting_goes_on_where_it_was(
    begun: Path, corpus: Path, loader: Loader, undisturbed: Atlas
) -> None:
    with pytest.raises(ValueError, match="is not finished: run the survey again"):
        Atlas(begun)
    parts = [Tally.load(path) for path in (begun / "shards").glob("*.npz")]
    assert len(parts) == 3
    counted = sum(int(part.sums["windows"]) for part in parts)
    found, windows = continued(corpus, loader, begun)
    assert_alike(found, undisturbed, 1e-12)
    # The rest, and the eight windows of repeats.
    assert windows == undisturbed.about.windows - counted + 8
    assert counted > 0


def test_what_was_counted_is_taken_as_it_is(
    begun: Path, corpus: Path, loader: Loader, undisturbed: Atlas
) -> None:
    part = min((begun / "shards").glob("*.npz"))
    tally = Tally.load(part)
    tally.add("documents", 1_000_000)
    part.write_bytes(tally.to_bytes())
    found, _ = continued(corpus, loader, begun)
    assert found.about.documents == undisturbed.about.documents + 1_000_000


def test_a_damaged_part_says_what_to_do(
    begun: Path, corpus: Path, loader: Loader, undisturbed: Atlas
) -> None:
    part = min((begun / "shards").glob("*.npz"))
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"is damaged .* remove it, and count"):
        continued(corpus, loader, begun)
    part.unlink()
    found, _ = continued(corpus, loader, begun)
    assert_alike(found, undisturbed, 1e-12)


@pytest.mark.parametrize(
    "where",
    [
        "tables",
        pytest.param("planning", marks=pytest.mark.slow),
        pytest.param("saving", marks=pytest.mark.slow),
        pytest.param("removing", marks=pytest.mark.slow),
    ],
)
def test_a_survey_killed_anywhere_goes_on(
    corpus: Path, model: Path, loader: Loader, undisturbed: Atlas, tmp_path: Path, where: str
) -> None:
    out = killed(where, corpus, model, tmp_path / "a.atlas")
    finished = (out / "atlas.json").exists()
    assert finished == (where == "removing")
    found, windows = continued(corpus, loader, out)
    assert_alike(found, undisturbed, 1e-12)
    if where in ("tables", "removing"):
        assert windows == 0
    else:
        assert windows == undisturbed.about.windows + 8
    left = {path.name for path in out.iterdir()}
    assert left == {path.name for path in undisturbed.path.iterdir()}


def test_a_source_that_changed_is_not_mixed_with_what_it_was(
    begun: Path, corpus: Path, loader: Loader, undisturbed: Atlas
) -> None:
    path = corpus / "005.txt"
    text, written = path.read_text("utf-8"), path.stat().st_mtime_ns
    # Of the same size, a second later.
    path.write_text(text.swapcase(), encoding="utf-8")
    os.utime(path, ns=(written, written + 1_000_000_000))
    try:
        with pytest.raises(ValueError, match=r"has another survey: model, text"):
            continued(corpus, loader, begun)
    finally:
        path.write_text(text, encoding="utf-8")
        os.utime(path, ns=(written, written))
    found, _ = continued(corpus, loader, begun)
    assert_alike(found, undisturbed, 1e-12)
