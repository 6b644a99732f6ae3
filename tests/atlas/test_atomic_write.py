"""Files that are there as a whole or not at all."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from regard.atlas.atomic_write import keep


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "shard-3.npz"
    for data in (b"much longer", b"short"):
        keep(path, data)
        assert path.read_bytes() == data
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shard-3.npz"
    keep(path, b"before")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        keep(path, b"after")
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_killed_before_it_is_written_the_file_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "shard-3.npz"
    keep(path, b"before")
    dying = """
import os, signal, sys
from pathlib import Path
from regard.atlas.atomic_write import keep
os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
keep(Path(sys.argv[1]), b"after")
"""
    ran = subprocess.run([sys.executable, "-c", dying, str(path)])
    assert ran.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"before"
    assert {found.suffix for found in tmp_path.iterdir()} == {".npz", ".partial"}
