"""A corpus cut into units: a file, or a stretch of one, that anybody can read alone."""

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
"""About how many bytes make a unit, of files that can be cut; of larger files more."""

MOST = 256
"""How many units a file is cut into, at most."""

KINDS = {
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".jsonl": "json lines",
    ".ndjson": "json lines",
    ".parquet": "parquet",
    ".conllu": "conllu",
}
"""What a file is, by the end of its name."""

UNKNOWN = -1
"""The size of a file whose place does not tell it."""


@dataclass(frozen=True)
class Unit:
    """A stretch of a file. Where it begins and ends depends on the file alone.

    Attributes:
        url: the file, as fsspec knows it.
        name: what the file is called in results: its place under the source.
        kind: one of `KINDS`.
        number: which stretch of the file: about 64 KiB, or more of a large one, or a row group.
        size: the size of the whole file, in bytes, or `UNKNOWN`.
        stamp: what changes when the file does, as far as its place tells.
    """

    url: str
    name: str
    kind: str
    number: int
    size: int
    stamp: str

    @property
    def id(self) -> str:
        """What it is called: the same in every run over the same file."""
        return f"{self.name}#{self.number}"


@dataclass(frozen=True)
class Shard:
    """Units that are counted together: what is lost and done again when a worker dies.

    Attributes:
        number: its place in the plan.
        units: what it is made of.
    """

    number: int
    units: tuple[Unit, ...]

    @cached_property
    def id(self) -> str:
        """A name that tells its content: units, their sizes and their stamps."""
        content = hashlib.sha256()
        for unit in self.units:
            said = f"{unit.url}\0{unit.number}\0{unit.size}\0{unit.stamp}\n"
            # Names of files may be any bytes.
            content.update(said.encode("utf-8", "surrogateescape"))
        return f"{self.number:06d}-{content.hexdigest()[:12]}"


def span_of(size: int) -> int:
    """Return about how many bytes make a unit of a file of so many."""
    span = UNIT
    while span * MOST < size:
        span *= 2
    return span


def find_units(
    source: str | os.PathLike[str], out: str | os.PathLike[str] | None = None
) -> list[Unit]:
    """Return the units of a source, in the order of their names.

    Args:
        source: a file, a folder with everything in it, a pattern with `*`, or a URL of one of
            these that fsspec knows.
        out: a folder of this machine to leave out: what a survey writes is nothing to read.

    Raises:
        FileNotFoundError: nothing is there.
        ValueError: no file of a known kind is there.
    """
    fsspec = needed("fsspec")
    filesystem, path = fsspec.core.url_to_fs(os.fspath(source))
    files, root = _files(filesystem, path)
    if out is not None:
        own = f"file://{os.path.abspath(out)}/"
        files = [f for f in files if not filesystem.unstrip_protocol(f["name"]).startswith(own)]
    if not files:
        raise FileNotFoundError(f"there is nothing at {source}: pass a file, a folder or a URL")
    known = [file for file in files if PurePosixPath(file["name"]).suffix.lower() in KINDS]
    if not known:
        raise ValueError(f"{source} has no file that can be read: known are {', '.join(KINDS)}")
    return [unit for file in known for unit in _units_of(filesystem, root, file)]


def into_shards(units: Sequence[Unit], shards: int | None = None) -> list[Shard]:
    """Cut units into shards of neighbours.

    Args:
        units: all of them.
        shards: how many, but no more than there are units; by default as many as make a quarter of
            a mebibyte each, but no more than 4,096.

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
    """Return what is known of each file of a source, and what its names begin with."""
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
    """Say whether something may be a file: no folder, and no pipe, which nobody may write to."""
    return found["type"] == "file" or bool(found.get("islink"))


def _is_inside(path: str, root: str) -> bool:
    """Say whether a file of this machine is a regular one, or will be once it is there.

    Raises:
        ValueError: it is a link, or below one, that leads out of the folder.
    """
    real = os.path.realpath(path)
    if os.path.lexists(real) and not os.path.isfile(real):
        return False
    if os.path.commonpath([real, os.path.realpath(root)]) != os.path.realpath(root):
        raise ValueError(
            f"{path} is a link to {real}, which is not below {root}: pass that folder, or copy it"
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
    """Return how many row groups a file has; one if it can't be read, which is said on reading."""
    parquet = needed("pyarrow.parquet")
    try:
        with filesystem.open(path) as file:
            return parquet.ParquetFile(file).num_row_groups
    except (OSError, ValueError, NotImplementedError):
        return 1
