"""A recording takes the place of another: one writer at a time, and one of both is always there."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard import AttentionMatrix
from regard.recording import open, save
from regard.recording.replacing import FolderKind, put_in_place, sole_writer
from tests.recording.replacing import record

KIND = FolderKind("zarr.json", frozenset({"zarr.json", "all", "calls", "texts"}))


def weights(path: Path) -> torch.Tensor:
    return open(path)[0].matrix[0].dense()


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_killed_while_it_replaces(run_python: Callable[..., str], tmp_path: Path) -> None:
    """Whenever it is killed, the old or the new one is there as a whole; the next cleans up."""
    old, new = (
        record(tmp_path / f"{name}.regard", scale)[0].matrix[0].dense()
        for name, scale in (("old", 1.0), ("new", 2.0))
    )
    moments = json.loads(run_python("-m", "tests.recording.replacing", str(tmp_path)))
    assert len(moments) >= 8
    for moment in moments:
        folder = tmp_path / str(moment)
        path = folder / "it.regard"
        whole = path if path.exists() else folder / "it.regard.replaced"
        assert any(torch.equal(weights(whole), one) for one in (old, new)), moment
        record(path, 2.0, overwrite=True)
        assert torch.equal(weights(path), new)
        assert [one.name for one in folder.iterdir()] == ["it.regard"]


def test_two_writers(tmp_path: Path) -> None:
    """Of two who write one recording the second is refused, so that nothing of both is mixed."""
    path = tmp_path / "it.regard"
    x = torch.randn(1, 1, 7, 4)
    with (
        sole_writer(path, KIND),
        pytest.raises(FileExistsError, match="is being written by another process"),
    ):
        save(AttentionMatrix(x, x), path, tokens=["a"] * 7)
    save(AttentionMatrix(x, x), path, tokens=["a"] * 7)
    assert [one.name for one in tmp_path.iterdir()] == ["it.regard"]


def test_many_writers_take_turns(tmp_path: Path) -> None:
    """No two are ever in at the same time, though the file that is locked is removed each time."""
    inside, most, refused = 0, 0, 0
    count = threading.Lock()

    def write() -> None:
        nonlocal inside, most, refused
        for _ in range(200):
            try:
                with sole_writer(tmp_path / "it.regard", KIND):
                    with count:
                        inside += 1
                        most = max(most, inside)
                    with count:
                        inside -= 1
            except FileExistsError:
                with count:
                    refused += 1

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert most == 1
    assert refused < 800


def test_what_is_not_ours_is_not_removed(tmp_path: Path) -> None:
    path, other = tmp_path / "it.regard", tmp_path / "it.regard.replaced"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"other files \(notes\.txt\): move it away"):
        record(path, 1.0)
    assert (other / "notes.txt").read_text() == "mine"


def test_what_is_half_removed_does_not_come_back(tmp_path: Path) -> None:
    path, left = tmp_path / "it.regard", tmp_path / "it.regard.replaced"
    (left / "calls").mkdir(parents=True)
    with sole_writer(path, KIND):
        assert not left.exists()
        assert not path.exists()


def test_a_folder_takes_the_place_of_another(tmp_path: Path) -> None:
    path = tmp_path / "it.regard"
    for text in ("old", "new"):
        with sole_writer(path, KIND) as written:
            written.mkdir()
            (written / "zarr.json").write_text(text)
            put_in_place(written, path, KIND)
    assert (path / "zarr.json").read_text() == "new"
    assert [one.name for one in tmp_path.iterdir()] == ["it.regard"]
