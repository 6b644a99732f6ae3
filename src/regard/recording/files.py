"""The files of a recording, verified by checksums.

`SHA256SUMS` of the root has the SHA-256 of the `SHA256SUMS` of every array, which has that of every
chunk; the digest of the recording includes the first. So each chunk is verified against the digest
when it is read, without reading others.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from regard.errors import first_line
from regard.recording.errors import RecordingError

DESCRIPTION = "zarr.json"
MOST_DESCRIPTION = 2**24
"""Maximum size of a description in bytes."""

SUMS = "SHA256SUMS"
"""In the format of sha256sum, with paths relative to the root of the recording."""

MOST_SUMS = 2**28
"""Maximum size of such a file in bytes."""

_LINE = re.compile(r"([0-9a-f]{64})  ([^\0\n]+)")


class FileSource(Protocol):
    """A folder or URL to read files from."""

    def read(self, name: str, most: int) -> bytes | None:
        """Return a file, or None if there is none.

        Raises:
            RecordingError: it is unreadable, or has more than `most` bytes.
        """
        ...

    def stamp(self) -> object:
        """Return a value that changes when the description is rewritten, if that is detectable."""
        ...


class Folder:
    """Regular files below a folder: no links, pipes or devices.

    Args:
        root: the folder.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.path.realpath(root)

    def read(self, name: str, most: int) -> bytes | None:
        """Return a file; see `FileSource`."""
        path = os.path.join(self._root, *name.split("/"))
        try:
            with open(_regular(path, name), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size > most:
                    raise RecordingError(f"{name} is damaged: it has {size:,} bytes")
                # Bounded, in case the file grows meanwhile.
                return file.read(size)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RecordingError(f"{name} is damaged: {error}") from error

    def stamp(self) -> object:
        """Return the description's inode, size and times; see `FileSource`."""
        try:
            found = os.stat(os.path.join(self._root, DESCRIPTION))
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


def _regular(path: str, name: str) -> int:
    """Open a file without following links or blocking on a pipe."""
    flags = (getattr(os, flag, 0) for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
    if os.path.realpath(path) != path:
        raise RecordingError(f"{name} must be a regular file: it is a link, or below one")
    found = os.open(path, os.O_RDONLY | sum(flags))
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise RecordingError(f"{name} must be a regular file")
    return found


class Remote:
    """Files below a URL.

    Args:
        url: a URL that fsspec supports.
    """

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        found: tuple[Any, str] = url_to_fs(url)
        self._system, self._root = found

    def read(self, name: str, most: int) -> bytes | None:
        """Return a file; see `FileSource`. Its size is checked after the transfer."""
        try:
            data: bytes = self._system.cat_file(f"{self._root.rstrip('/')}/{name}")
        except (FileNotFoundError, PermissionError):
            # S3 answers 403 for a missing file if listing is not allowed.
            return None
        # Each library of fsspec has its own exceptions.
        except Exception as error:
            raise RecordingError(f"can't read {name}: {first_line(error)}") from error
        if len(data) > most:
            raise RecordingError(f"{name} is damaged: it has {len(data):,} bytes")
        return data

    def stamp(self) -> object:
        """Return a constant; see `FileSource`."""
        return None


class Files:
    """The files of one recording.

    Args:
        source: the folder or URL.
        sums: the SHA-256 of each `SHA256SUMS` below the root; None for recordings of 0.1 and
            unfinished ones.
        fixed: whether to refuse files that were rewritten after now; without sums that is detected
            by the description.
    """

    def __init__(
        self, source: FileSource, sums: Mapping[str, str] | None = None, *, fixed: bool = False
    ) -> None:
        self._source, self._sums = source, sums
        self._stamp = source.stamp() if fixed else None
        self._below: dict[str, Mapping[str, str]] = {}

    def read(self, folder: str, name: str, most: int) -> bytes | None:
        """Return a verified file, or None if it was not recorded.

        Args:
            folder: the folder of its array.
            name: its path relative to the root.
            most: its maximum size in bytes.

        Raises:
            RecordingError: it is damaged, missing, or its SHA-256 differs.
        """
        if self._sums is None:
            if self._stamp is not None and self._stamp != self._source.stamp():
                raise RecordingError(f"{folder} has changed since it was opened: open it again")
            return self._source.read(name, most)
        if folder not in self._below:
            listed = self._checked(folder, f"{folder}/{SUMS}", self._sums, MOST_SUMS)
            self._below[folder] = parsed(listed or b"")
        return self._checked(folder, name, self._below[folder], most)

    def _checked(self, folder: str, name: str, sums: Mapping[str, str], most: int) -> bytes | None:
        if name not in sums:
            return None
        data = self._source.read(name, most)
        if data is None:
            raise RecordingError(f"{folder} is damaged: {name} is missing; {_AGAIN}")
        if hashlib.sha256(data).hexdigest() != sums[name]:
            raise RecordingError(f"{folder} is damaged: the SHA-256 of {name} differs; {_AGAIN}")
        return data


_AGAIN = "copy it again, or open it again if it was rewritten"


def parsed(data: bytes) -> dict[str, str]:
    """Parse a `SHA256SUMS`: return the SHA-256 of each listed file.

    Raises:
        RecordingError: it is malformed, or lists a file twice.
    """
    found: dict[str, str] = {}
    for line in data.decode("ascii", errors="replace").splitlines():
        match = _LINE.fullmatch(line)
        if match is None or match[2] in found:
            raise RecordingError(f"{SUMS} is damaged: {line[:100]!r}")
        found[match[2]] = match[1]
    return found


def write_sums(root: Path, arrays: Iterable[str]) -> None:
    """Write `SHA256SUMS` into the folder of every array and into the root."""
    listed: list[str] = []
    for array in sorted(arrays):
        lines = [_line(root, name) for name in sorted(_below(root, array))]
        listed.append(f"{array}/{SUMS}")
        (root / array / SUMS).write_text("".join(lines), encoding="utf-8")
    lines = [_line(root, name) for name in listed]
    (root / SUMS).write_text("".join(lines), encoding="utf-8")


def _below(root: Path, array: str) -> Iterator[str]:
    """Yield the files of an array as paths relative to the root."""
    for folder, _, files in os.walk(root / array):
        inside = Path(folder).relative_to(root).as_posix()
        yield from (f"{inside}/{name}" for name in files if name != SUMS)


def _line(root: Path, name: str) -> str:
    return f"{hashlib.sha256((root / name).read_bytes()).hexdigest()}  {name}\n"
