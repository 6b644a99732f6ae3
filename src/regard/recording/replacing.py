"""A folder that takes the place of another: by one writer at a time, and never is there neither."""

import os
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from regard.recording.opening import PARTIAL

REPLACED = ".replaced"
"""What is added to the name of a folder while it is replaced."""

LOCK = ".lock"
"""What is added to the name of a folder for the file that its writer has locked."""


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder.

    Attributes:
        marker: the file without which it is none; it is removed first.
        names: all that may be in it.
    """

    marker: str
    names: frozenset[str]

    def remove(self, folder: Path) -> None:
        """Remove a folder."""
        (folder / self.marker).unlink(missing_ok=True)
        shutil.rmtree(folder)

    def remove_left(self, folder: Path) -> None:
        """Remove what is left of a folder of this kind.

        Raises:
            FileExistsError: there is something else in it.
        """
        others = sorted(one.name for one in folder.iterdir() if one.name not in self.names)
        if others:
            raise FileExistsError(f"{folder} has other things in it ({others[0]}): move it away")
        self.remove(folder)


@contextmanager
def sole_writer(path: Path, kind: FolderKind) -> Generator[Path]:
    """Let nobody else write a folder, and mend what a killed writer has left of the one before.

    Args:
        path: the folder.
        kind: what it is.

    Yields:
        Where to write it, before `put_in_place`. What a killed writer has begun is there still.

    Raises:
        FileExistsError: another process writes it.
    """
    with _locked(path):
        before = path.with_name(path.name + REPLACED)
        if before.is_dir():
            if path.exists() or not (before / kind.marker).exists():
                kind.remove_left(before)
            else:
                before.rename(path)
        yield path.with_name(path.name + PARTIAL)


def put_in_place(written: Path, path: Path, kind: FolderKind) -> None:
    """Give a folder its name. One that had it is moved aside, and removed last."""
    before = path.with_name(path.name + REPLACED)
    if path.exists():
        path.rename(before)
    written.rename(path)
    if before.exists():
        kind.remove(before)


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Hold a lock that ends with the process; on Windows there is none."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    name = path.with_name(path.name + LOCK)
    while True:
        lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise FileExistsError(
                f"{path} is being written by another process: wait for it, or choose another name"
            ) from None
        if _is_named(lock, name):
            break
        # The one who had it has removed it meanwhile.
        os.close(lock)
    try:
        yield
    finally:
        name.unlink(missing_ok=True)
        os.close(lock)


def _is_named(lock: int, name: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), os.stat(name))
    except FileNotFoundError:
        return False
