"""Split a corpus into units, files or stretches of files, and units into shards."""

import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from regard.atlas.extra import needed
from regard.printable import well_formed

UNIT = 64 * 1024
"""Approximate bytes per unit of a splittable file; more for large files."""

MOST = 256
"""Maximum units per file."""

KINDS = {
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".jsonl": "json lines",
    ".ndjson": "json lines",
    ".parquet": "parquet",
    ".conllu": "conllu",
}
"""The kind of a file, by its suffix."""

UNKNOWN = -1
"""The size of a file if its filesystem does not report it."""


@dataclass(frozen=True)
class Unit:
    """A stretch of a file. Its ends depend on the file only.

    Attributes:
        url: the file's URL for fsspec.
        name: the file's path below the source.
        kind: one of `KINDS`.
        number: index of the stretch, of about 64 KiB or more, or of the row group.
        size: the size of the whole file, in bytes, or `UNKNOWN`.
        stamp: a value that changes with the file, if the filesystem has one.
    """

    url: str
    name: str
    kind: str
    number: int
    size: int
    stamp: str

    @property
    def id(self) -> str:
        """Its name, the same in every run over the same file."""
        return f"{self.name}#{self.number}"


@dataclass(frozen=True)
class Shard:
    """Units that are counted together, and retried together when a worker dies.

    Attributes:
        number: its index in the plan.
        units: its units.
    """

    number: int
    units: tuple[Unit, ...]

    @cached_property
    def id(self) -> str:
        """A digest of its units, their sizes and stamps."""
        content = hashlib.sha256()
        for unit in self.units:
            said = f"{unit.url}\0{unit.number}\0{unit.size}\0{unit.stamp}\n"
            # File names may be any bytes.
            content.update(said.encode("utf-8", "surrogateescape"))
        return f"{self.number:06d}-{content.hexdigest()[:12]}"


def span_of(size: int) -> int:
    """Return the approximate bytes per unit of a file of `size` bytes."""
    span = UNIT
    while span * MOST < size:
        span *= 2
    return span


def find_units(
    source: str | os.PathLike[str], out: str | os.PathLike[str] | None = None
) -> list[Unit]:
    """Return the units of a source, in the order of their names.

    Args:
        source: a file, a folder, a glob, or a URL of one of these that fsspec supports.
        out: the output folder of the survey, which is not read.

    Raises:
        FileNotFoundError: the source does not exist.
        ValueError: it has no file of a known kind.
    """
    fsspec = needed("fsspec")
    filesystem, path = fsspec.core.url_to_fs(os.fspath(source))
    files, root = _files(filesystem, path)
    if out is not None:
        own = f"file://{os.path.abspath(out)}/"
        files = [f for f in files if not filesystem.unstrip_protocol(f["name"]).startswith(own)]
    if not files:
        raise FileNotFoundError(f"{source} does not exist: pass a file, a folder, a glob or a URL")
    known = [file for file in files if PurePosixPath(file["name"]).suffix.lower() in KINDS]
    if not known:
        raise ValueError(f"{source} must have files with one of the suffixes {', '.join(KINDS)}")
    return [unit for file in known for unit in _units_of(filesystem, root, file)]


def into_shards(units: Sequence[Unit], shards: int | None = None) -> list[Shard]:
    """Split units into shards of neighbours.

    Args:
        units: all units.
        shards: number of shards, at most one per unit; by default a quarter of a mebibyte each, but
            at most 4,096.

    Raises:
        ValueError: `shards` is below 1.
    """
    if shards is None:
        shards = max(1, min(4096, -(-len(units) // 4)))
    if shards < 1:
        raise ValueError(f"shards must be at least 1, got {shards}")
    shards = min(shards, len(units))
    edges = [len(units) * number // shards for number in range(shards + 1)]
    return [
        Shard(number, tuple(units[start:stop]))
        for number, (start, stop) in enumerate(itertools.pairwise(edges))
    ]


def _files(filesystem: Any, path: str) -> tuple[list[dict[str, Any]], str]:
    """Return fsspec's info of each file of a source, and their common root."""
    if "*" in path:
        found = filesystem.glob(path, detail=True)
        root = path[: path.index("*")].rpartition("/")[0]
    elif filesystem.isdir(path):
        found, root = filesystem.find(path, detail=True), path
    elif filesystem.exists(path):
        found, root = {path: filesystem.info(path)}, path.rpartition("/")[0]
    else:
        return [], path
    listed = [found[name] for name in sorted(found) if _is_file(found[name])]
    if path in found or "file" not in filesystem.protocol:
        return listed, root
    return [one for one in listed if _is_inside(one["name"], root)], root


def _is_file(found: dict[str, Any]) -> bool:
    """Return whether an entry is a file: not a folder, and not a pipe, which would block."""
    return found["type"] == "file" or bool(found.get("islink"))


def _is_inside(path: str, root: str) -> bool:
    """Return whether a local file is a regular one, or does not exist yet.

    Raises:
        ValueError: it is a link out of the folder, or below one.
    """
    real = os.path.realpath(path)
    if os.path.lexists(real) and not os.path.isfile(real):
        return False
    if os.path.commonpath([real, os.path.realpath(root)]) != os.path.realpath(root):
        raise ValueError(
            f"{path} must be below {root}, but links to {real}: pass that folder, or copy it"
        )
    return True


def _units_of(filesystem: Any, root: str, file: dict[str, Any]) -> Iterator[Unit]:
    path, size = file["name"], UNKNOWN if file["size"] is None else int(file["size"])
    kind = KINDS[PurePosixPath(path).suffix.lower()]
    name = well_formed(path.removeprefix(root).lstrip("/"))
    stamp = next(
        (str(file[key]) for key in ("ETag", "etag", "mtime", "created") if key in file), ""
    )
    count = -(-size // span_of(size))
    if kind == "parquet":
        count = _row_groups(filesystem, path)
    for number in range(max(1, count)):
        yield Unit(filesystem.unstrip_protocol(path), name, kind, number, size, stamp)


def _row_groups(filesystem: Any, path: str) -> int:
    """Return the number of row groups of a file; 1 if it is unreadable, which is reported later."""
    parquet = needed("pyarrow.parquet")
    try:
        with filesystem.open(path) as file:
            return parquet.ParquetFile(file).num_row_groups
    except (OSError, ValueError, NotImplementedError):
        return 1
