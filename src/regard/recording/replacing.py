"""Replace a folder: one writer at a time, and the old or the new one always exists."""

import os
import shutil
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from regard.printable import printable
from regard.recording.opening import PARTIAL

REPLACED = ".replaced"
"""Suffix of a folder that is being replaced."""

LOCK = ".lock"
"""Suffix of a writer's lock file."""


def on_one_line(name: str) -> str:
    """Return the name of a file for an error; it may have line breaks."""
    return " ".join(printable(name).split())


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder.

    Attributes:
        marker: the file that marks a complete folder; it is removed first.
        names: the allowed entries.
    """

    marker: str
    names: frozenset[str]

    def remove(self, folder: Path) -> None:
        """Remove a folder."""
        (folder / self.marker).unlink(missing_ok=True)
        shutil.rmtree(folder)

    def remove_left(self, folder: Path) -> None:
        """Remove the remains of a folder of this kind.

        Raises:
            FileExistsError: it has other entries.
        """
        self.check_names(folder)
        self.remove(folder)

    def check_names(self, folder: Path) -> None:
        """Raise FileExistsError if a folder has entries of other names."""
        # A killed writer leaves files that didn't have their names yet.
        others = sorted(
            one.name
            for one in folder.iterdir()
            if one.name not in self.names and one.suffix != PARTIAL
        )
        if others:
            raise FileExistsError(
                f"{folder} has other files ({on_one_line(others[0])}): move it away"
            )


@contextmanager
def sole_writer(path: Path, kind: FolderKind, *, joint: bool = False) -> Generator[Path]:
    """Lock a folder for writing, and finish a replacement that was killed.

    Args:
        path: the folder.
        kind: its kind.
        joint: whether others may join, with `joined_writer`.

    Yields:
        The temporary folder to write, before `put_in_place`; it may have files of a killed writer.

    Raises:
        FileExistsError: another process is writing it, or one of these folders is none.
    """
    with _locked(path) as lock:
        before = path.with_name(path.name + REPLACED)
        for folder in (path, before, path.with_name(path.name + PARTIAL)):
            _check_folder(folder)
        if before.is_dir():
            if path.exists() or not (before / kind.marker).exists():
                kind.remove_left(before)
            else:
                before.rename(path)
        if joint:
            _lock(lock, path, joint=True)
        yield path.with_name(path.name + PARTIAL)


def _check_folder(folder: Path) -> None:
    """Raise FileExistsError if a path is a link or a file: what it leads to is not ours."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise FileExistsError(f"{folder} is a link or a file, and must be a folder: remove it")


def put_in_place(written: Path, path: Path, kind: FolderKind) -> None:
    """Rename a folder to its name; an existing one is moved aside and removed last."""
    before = path.with_name(path.name + REPLACED)
    if path.exists():
        path.rename(before)
    written.rename(path)
    if before.exists():
        kind.remove(before)


def joined_writer(path: Path) -> AbstractContextManager[object]:
    """Write a folder together with its `sole_writer`; it is locked until the last one ends."""
    return _locked(path, joint=True)


@contextmanager
def _locked(path: Path, *, joint: bool = False) -> Generator[int]:
    """Hold a lock that ends with the process; no lock on Windows.

    Args:
        path: the folder.
        joint: whether others may hold it too.

    Yields:
        The descriptor of the lock file.
    """
    if sys.platform == "win32":
        yield -1
        return
    name = path.with_name(path.name + LOCK)
    while True:
        lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            _lock(lock, path, joint=joint)
        except FileExistsError:
            os.close(lock)
            raise
        if _is_named(lock, name):
            break
        # The former owner has removed the file meanwhile.
        os.close(lock)
    try:
        yield lock
    finally:
        # The last one that holds it removes the file.
        with suppress(FileExistsError):
            _lock(lock, path)
            name.unlink(missing_ok=True)
        os.close(lock)


def _lock(lock: int, path: Path, *, joint: bool = False) -> None:
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if joint else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FileExistsError(
            f"{path} is being written by another process: wait for it, or choose another name"
        ) from None


def _is_named(lock: int, name: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), os.stat(name))
    except FileNotFoundError:
        return False
