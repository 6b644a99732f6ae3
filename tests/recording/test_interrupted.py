"""What an interrupted run has left is of this recording, or it is removed or refused."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard import AttentionMatrix
from regard.calls import AttentionCall
from regard.recording import Recording, RecordingError, open, save

pytestmark = pytest.mark.usefixtures("unchecked")

TOKENS, KEYS = 7, 11
PUBLIC = [f"public{number}" for number in range(TOKENS)]


def calls(count: int, scale: float = 1.0, keys: int = TOKENS) -> list[AttentionCall]:
    x = torch.randn(1, 2, max(TOKENS, keys), 4, generator=torch.Generator().manual_seed(0))
    kind = "self" if keys == TOKENS else "cross"
    matrix = AttentionMatrix(scale * x[:, :, :TOKENS], x[:, :, :keys])
    return [AttentionCall.of(matrix, f"layers.{layer}", kind) for layer in range(count)]


def record(path: Path, count: int = 2, scale: float = 1.0) -> Recording:
    return save(calls(count, scale), path, tokens=PUBLIC, progress=False)


def interrupted(path: Path, make: Callable[[], object]) -> Path:
    """Record, as if it were killed before the recording gets its name; return what is left."""
    make()
    return path.rename(path.with_name(path.name + ".partial"))


def files(path: Path) -> list[str]:
    return sorted(file.relative_to(path).as_posix() for file in path.rglob("*"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "it.regard"


@pytest.mark.parametrize("finished", [True, False])
def test_nothing_of_another_text_stays(path: Path, tmp_path: Path, finished: bool) -> None:
    """Of a text of two languages and three layers nothing is in a recording of another one."""
    secret = [f"SECRET{number}" for number in range(KEYS)]
    tokens = [f"TARGET{number}" for number in range(TOKENS)]
    left = interrupted(
        path,
        lambda: save(calls(3, 1.0, KEYS), path, tokens=tokens, source=secret, progress=False),
    )
    if not finished:
        shutil.rmtree(left / "calls/0001")
    found = record(path, 1)
    wanted = record(tmp_path / "alone.regard", 1)
    assert files(path) == files(tmp_path / "alone.regard")
    assert len(found) == len(wanted) == 1
    assert found.tokens == PUBLIC


def test_nothing_of_more_layers_stays(path: Path, tmp_path: Path) -> None:
    interrupted(path, lambda: record(path, 3))
    record(path, 1)
    record(tmp_path / "alone.regard", 1)
    assert files(path) == files(tmp_path / "alone.regard")


@pytest.mark.parametrize(
    "stray",
    ["calls/0000/notes.txt", "calls/0000/query/c/7/0/0", "calls/0000/query/c/0/0/00", "calls/9999"],
)
def test_no_file_stays_that_is_none_of_its_own(path: Path, tmp_path: Path, stray: str) -> None:
    left = interrupted(path, lambda: record(path))
    (left / stray).parent.mkdir(parents=True, exist_ok=True)
    (left / stray).write_text("a secret")
    record(path)
    record(tmp_path / "alone.regard")
    assert files(path) == files(tmp_path / "alone.regard")


@pytest.mark.parametrize("lost", ["key/c/0/0/0", "query/zarr.json", "entropy"])
def test_a_call_that_lacks_something_is_recorded_again(path: Path, lost: str) -> None:
    left = interrupted(path, lambda: record(path))
    gone = left / "calls/0000" / lost
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    torch.testing.assert_close(record(path)[0].matrix.dense(), calls(1)[0].matrix.dense())


@pytest.mark.parametrize(
    ("inside", "change"),
    [
        (["attributes"], {"note": "a secret"}),
        (["attributes", "regard"], {"heads": 1}),
        (["attributes", "regard"], {"scale": 2.0}),
        ([], {"node_type": "array"}),
        ([], {"more": {"x": 1}}),
    ],
)
@pytest.mark.parametrize("group", ["", "calls/0000"])
def test_what_is_said_otherwise_is_not_kept(
    path: Path, group: str, inside: list[str], change: dict[str, object]
) -> None:
    left = interrupted(path, lambda: record(path))
    file = left / group / "zarr.json"
    data = json.loads(file.read_text())
    edited = data
    for name in inside:
        edited = edited[name]
    edited.update(change)
    file.write_text(json.dumps(data))
    found = record(path)
    assert "a secret" not in (path / "zarr.json").read_text()
    torch.testing.assert_close(found[0].matrix.dense(), calls(1)[0].matrix.dense())


def test_what_a_killed_writer_has_not_named_is_removed(path: Path) -> None:
    left = interrupted(path, lambda: record(path))
    (left / "zarr.json.partial").write_text("{")
    # Zarr is killed after it has given a file its name, and before the other one is removed.
    os.link(left / "calls/0000/zarr.json", left / "calls/0000/zarr.0123.partial")
    record(path)
    assert not list(path.rglob("*.partial"))


def test_files_of_somebody_else_are_not_removed(path: Path) -> None:
    left = interrupted(path, lambda: record(path))
    (left / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"other files \(notes\.txt\): move it away"):
        record(path)
    assert (left / "notes.txt").read_text() == "mine"


def test_a_finished_recording_is_compared_with_its_description(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever wrote a file into it, it gets its name only without."""
    from regard.recording.pyramid import mean_of_all

    def leave(calls: list[object], group: object) -> list[int]:
        (path.with_name("it.regard.partial") / "calls/0000/query/more").write_text("a secret")
        return mean_of_all(calls, group)  # pyright: ignore[reportArgumentType]

    monkeypatch.setitem(save.__globals__, "mean_of_all", leave)
    with pytest.raises(RecordingError, match="no others, and calls/0000/query/more is missing or"):
        record(path)
    assert not path.exists()


LINKS = ("texts", "calls", "calls/0000", "texts/0/tokens", "zarr.json", "calls/0000/query/c/0/0/0")


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("name", LINKS)
def test_nothing_is_written_through_a_link(path: Path, name: str, begun: bool) -> None:
    """A folder that somebody else has left leads nowhere else."""
    left = path.with_name("it.regard.partial")
    victim = path.with_name("victim")
    for sub in ("0", "calls", "c"):
        (victim / sub).mkdir(parents=True)
        (victim / sub / "precious.txt").write_text("x")
    if begun:
        interrupted(path, lambda: record(path))
        if (left / name).is_dir():
            shutil.rmtree(left / name)
        else:
            (left / name).unlink()
    (left / name).parent.mkdir(parents=True, exist_ok=True)
    (left / name).symlink_to(victim)
    before = files(victim)
    with pytest.raises(FileExistsError, match="must have regular files only") as raised:
        record(path)
    assert len(str(raised.value).splitlines()) == 1
    assert files(victim) == before
    assert not path.exists()


@pytest.mark.parametrize("suffix", ["", ".partial", ".replaced"])
@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_is_a_link_is_refused(path: Path, suffix: str, there: bool) -> None:
    victim = path.with_name("victim")
    if there:
        (victim / "all").mkdir(parents=True)
        for name in ("zarr.json", "all/precious.txt"):
            (victim / name).write_text("{}")
    path.with_name("it.regard" + suffix).symlink_to(victim)
    before = files(victim)
    with pytest.raises(FileExistsError, match="is a link or a file, and must be a folder"):
        save(calls(1), path, tokens=PUBLIC, overwrite=True, progress=False)
    assert files(victim) == before


def test_a_file_with_two_names_is_not_changed(path: Path, tmp_path: Path) -> None:
    left = interrupted(path, lambda: record(path))
    precious = tmp_path / "precious.txt"
    precious.write_text("x")
    sums = left / "calls/0000/query/SHA256SUMS"
    sums.unlink()
    os.link(precious, sums)
    with pytest.raises(FileExistsError, match="SHA256SUMS is a link or a device"):
        record(path)
    assert precious.read_text() == "x"


def test_a_publication_removes_nothing_through_a_link(path: Path, tmp_path: Path) -> None:
    from regard.server.publish import publish

    recording = record(path)
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "recordings.json").write_text("{}")
    (tmp_path / "map.partial").symlink_to(victim)
    with pytest.raises(FileExistsError, match="is a link or a file"):
        publish(recording, tmp_path / "map", progress=False)
    assert (victim / "recordings.json").exists()
    assert open(path).digest == recording.digest
