"""Recordings that are damaged while they are served: what is lost is told, and life goes on."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.recording import open as open_recording
from tests.server.made import Made
from tests.server.running import served

pytestmark = pytest.mark.usefixtures("one_thread")


def removed(path: Path) -> None:
    path.unlink()


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def overwritten(path: Path) -> None:
    path.write_bytes(bytes(len(path.read_bytes())))


@pytest.mark.parametrize("damage", [removed, truncated, overwritten])
def test_an_error_and_life_goes_on(
    book: Made, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    copy = tmp_path / "copy.regard"
    shutil.copytree(book.path, copy)
    recording = open_recording(copy)
    with served(recording) as running:
        below = f"/data/{recording.digest}"
        assert running.get(f"{below}/tiles/c0-h0-mean/2/0/1.bin").status_code == 200
        chunks = [path for path in (copy / "calls/0000/key/c").rglob("*") if path.is_file()]
        for path in chunks:
            damage(path)
        # What was computed before is kept.
        assert running.get(f"{below}/tiles/c0-h0-mean/2/0/1.bin").status_code == 200
        for lost in ("tiles/c0-h1-mean/2/0/1.bin", "rows/c0-h1/3.json", "weight/c0-h1/9/3.json"):
            answer = running.get(f"{below}/{lost}")
            assert answer.status_code == 500, lost
            assert list(answer.json()) == ["error"]
            assert "damaged" in answer.json()["error"]
            assert "Traceback" not in answer.text
        uid = f"{recording.digest}_c0-h1-mean.2.0.1"
        tiles = running.get("/api/v1/tiles/", params={"d": uid}).json()
        assert "damaged" in tiles[uid]["error"]
        for whole in ("info.json", "tiles/c1-h1-mean/2/0/1.bin", "rows/c1-h1/3.json"):
            assert running.get(f"{below}/{whole}").status_code == 200, whole
