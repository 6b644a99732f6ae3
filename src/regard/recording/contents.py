"""The files of a recording that is being written: regular ones, of its own arrays only.

An interrupted run leaves files in `NAME.partial`, and the next one continues with them. They may be
of another text or model, or come from somebody else, so nothing is kept that is not known.
"""

import json
import math
import os
import shutil
import stat
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from regard.recording.arrays import ArraySpec
from regard.recording.errors import RecordingError
from regard.recording.files import DESCRIPTION, MOST_DESCRIPTION, SUMS, Folder
from regard.recording.layout import Specs, is_map
from regard.recording.replacing import FolderKind, on_one_line
from regard.recording.schema import ATTRIBUTE, Facts

RECORDING = FolderKind(DESCRIPTION, frozenset({DESCRIPTION, SUMS, "all", "calls", "texts"}))

_PLAN = ("version", "model", "texts", "calls", "target")
"""The facts of a recording that are the same when it is recorded once more."""


def check_regular(folder: Path) -> None:
    """Raise FileExistsError unless a folder has folders and regular files only."""
    # Changing a file changes it under its other names too. Both may be here: Zarr gives a file its
    # name by a second link, and may be killed then.
    names: dict[tuple[int, int], list[str]] = {}
    for path in _entries(folder):
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode):
            continue
        if not stat.S_ISREG(found.st_mode):
            raise _not_regular(folder, path)
        if found.st_nlink > 1:
            names.setdefault((found.st_dev, found.st_ino), []).append(path)
    for paths in names.values():
        if len(paths) < os.lstat(paths[0]).st_nlink:
            raise _not_regular(folder, paths[0])


def _entries(folder: Path) -> Iterator[str]:
    for path, folders, files in os.walk(folder):
        yield from (os.path.join(path, name) for name in (*folders, *files))


def _not_regular(folder: Path, path: str) -> FileExistsError:
    return FileExistsError(
        f"{folder} must have regular files only, and {on_one_line(path)} is a link or a device: "
        "remove it"
    )


def keep_calls(folder: Path, facts: Facts) -> None:
    """Remove what an interrupted run has left, except its calls if it was to record the same.

    Args:
        folder: its folder; it may not exist.
        facts: the recording to write.

    Raises:
        FileExistsError: it has links, or files that are none of a recording.
    """
    if not folder.exists():
        return
    check_regular(folder)
    RECORDING.check_names(folder)
    if not _is_begun(folder, facts):
        RECORDING.remove(folder)
        return
    # The description stays until another takes its place: without it, calls would not be kept.
    _remove_except(folder, {DESCRIPTION, "calls"})
    if (folder / "calls").is_dir():
        _remove_except(folder / "calls", {f"{number:04d}" for number in range(facts.calls)})


def _is_begun(folder: Path, facts: Facts) -> bool:
    """Return whether a folder was to become the same recording."""
    try:
        begun = Facts.model_validate(stored_attribute(folder, ""))
    except ValueError:
        return False
    return all(getattr(begun, name) == getattr(facts, name) for name in _PLAN)


def stored_attribute(root: Path, group: str) -> object:
    """Return the attribute of a group that an interrupted run has written, read without Zarr.

    Raises:
        ValueError: there is none, or the group has something else.
    """
    data = Folder(root).read(f"{group}/{DESCRIPTION}".lstrip("/"), MOST_DESCRIPTION)
    try:
        match json.loads(data or b""):
            case {"zarr_format": 3, "node_type": "group", "attributes": dict(attributes), **others}:
                if attributes.keys() == {ATTRIBUTE} and others.keys() <= {"consolidated_metadata"}:
                    return attributes[ATTRIBUTE]
            case _:
                pass
    except RecursionError as error:
        raise ValueError(f"{DESCRIPTION} is nested too deeply") from error
    raise ValueError(f"{DESCRIPTION} is none that Regard writes")


def _remove_except(folder: Path, kept: Collection[str]) -> None:
    for path in list(folder.iterdir()):
        if path.name in kept:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def is_complete(root: Path, folder: str, specs: Mapping[str, ArraySpec]) -> bool:
    """Return whether a folder has these arrays with all their chunks, and no other file."""
    arrays = {f"{folder}/{name}": spec for name, spec in specs.items()}
    if next(_wrong_files(root, folder, arrays), None) is not None:
        return False
    files = Folder(root)
    try:
        return all(
            json.loads(files.read(f"{name}/{DESCRIPTION}", MOST_DESCRIPTION) or b"")
            == spec.metadata()
            for name, spec in arrays.items()
        )
    except (ValueError, RecursionError):
        return False


def check_contents(root: Path, metadata: Mapping[str, object], specs: Specs) -> None:
    """Check that a written recording has its arrays with all their chunks, and nothing else.

    Args:
        root: its folder.
        metadata: the declared metadata of each group and array, by path.
        specs: its arrays, by folder.

    Raises:
        FileExistsError: it has links or devices.
        RecordingError: something is missing, or is none of the recording's.
    """
    arrays = {
        f"{folder}/{name}": spec for folder, own in specs.items() for name, spec in own.items()
    }
    expected = {*arrays, *_groups(arrays), *specs, "calls"}
    wrong = [*sorted(expected.symmetric_difference(metadata)), *_wrong_files(root, "", arrays)]
    if wrong:
        raise RecordingError(
            f"{root} must have the files of its arrays and no others, and {on_one_line(wrong[0])} "
            "is missing or is another: remove the folder, and record it again"
        )


def _groups(arrays: Collection[str]) -> set[str]:
    """Return the paths of the groups of arrays."""
    groups: set[str] = set()
    for name in arrays:
        parts = name.split("/")[:-1]
        groups |= {"/".join(parts[: end + 1]) for end in range(len(parts))}
    return groups


def _wrong_files(root: Path, folder: str, arrays: Mapping[str, ArraySpec]) -> Iterator[str]:
    """Yield files of a folder that are none of its arrays', then arrays that lack a chunk."""
    nodes = {folder, *arrays, *_groups(arrays), "all", "calls"}
    known = {f"{node}/{DESCRIPTION}".lstrip("/") for node in nodes}
    known |= {SUMS, *(f"{array}/{SUMS}" for array in arrays)}
    chunks: Counter[str] = Counter()
    for name in _files_below(root, folder):
        array, _, chunk = name.rpartition("/c/")
        if array in arrays and _is_chunk(chunk, arrays[array]):
            chunks[array] += 1
        elif name not in known:
            yield name
    for array, spec in arrays.items():
        if not is_map(array.split("/", 2)[-1]) and chunks[array] < math.prod(spec.grid):
            yield array


def _files_below(root: Path, folder: str) -> Iterator[str]:
    """Yield the files below a folder as paths relative to the root."""
    for path, _, files in os.walk(root / folder):
        inside = Path(path).relative_to(root)
        yield from ((inside / name).as_posix() for name in files)


def _is_chunk(name: str, spec: ArraySpec) -> bool:
    """Return whether an array has a chunk of this name, such as "0/3"."""
    parts = name.split("/")
    return len(parts) == len(spec.grid) and all(
        part.isdecimal() and part == str(int(part)) and int(part) < count
        for part, count in zip(parts, spec.grid, strict=True)
    )
