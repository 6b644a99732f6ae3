"""A map as a folder of files, which any web server can serve."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from os import PathLike
from pathlib import Path

from regard.matrix.progress import progressing
from regard.recording import Recording
from regard.recording.files import Folder
from regard.recording.replacing import FolderKind, put_in_place, sole_writer
from regard.server.assets import ASSETS, assets
from regard.server.file_layout import File
from regard.server.info import recordings
from regard.server.job_queue import one_thread_each
from regard.server.models import Info
from regard.server.publication import ALL, Publication, files_of, planned
from regard.server.tile_ids import POOLS

_LIST = "recordings.json"
_DATA = "data"
_SITE = FolderKind(_LIST, frozenset({*ASSETS, _LIST, _DATA}))
_MOST_LIST = 2**20
"""So many bytes that list has at most."""

_MOST_FILES = 2**22
_BATCH = 64
"""So many files are computed at a time."""


def publish(
    recording: Recording,
    folder: str | PathLike[str],
    *,
    heads: Sequence[str] = (ALL,),
    depth: int | None = None,
    pools: Sequence[str] = POOLS,
    progress: bool | None = None,
) -> Path:
    """Write the map of a recording as a folder that needs no server of ours.

    `regard.server.estimate` says beforehand how large it becomes. The folder appears when it is
    complete, in place of an earlier publication.

    Args:
        recording: the recording.
        folder: where; it must be new, empty, or an earlier publication.
        heads: which heads, as "18.6" or "18.mean"; "mean" for the mean of all heads; "all" for all
            of these.
        depth: the deepest level of the map; by default that down to which it is stored.
        pools: how cells are pooled.
        progress: whether to show a progress bar; by default in terminals and notebooks.

    Returns:
        The folder.

    Raises:
        FileExistsError: there is something else in the folder.
        ValueError: there is no such head, level or pool.
        RecordingError: the recording is damaged.
    """
    return write(planned(recording, heads=heads, depth=depth, pools=pools), folder, progress)


def write(
    publication: Publication, folder: str | PathLike[str], progress: bool | None = None
) -> Path:
    """Write a publication; as `publish`."""
    target = Path(folder).expanduser().resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    with sole_writer(target, _SITE) as unfinished:
        check_free(target)
        if unfinished.exists():
            _SITE.remove_left(unfinished)
        unfinished.mkdir()
        try:
            _write_all(publication, unfinished, progress)
            _check_complete(unfinished, publication.recording.digest)
            put_in_place(unfinished, target, _SITE)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    return target


def check_free(folder: Path) -> None:
    """Make sure that nothing is lost if a folder is replaced by a publication.

    Raises:
        FileExistsError: it is a file, or has something in it that is none of ours.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise FileExistsError(f"{folder} is a file: choose the name of a folder")
    found = {one.name for one in folder.iterdir()}
    others = sorted(found - _SITE.names)
    if others or (found and not _is_publication(folder)):
        what = f"has other things in it ({', '.join(others[:3])})" if others else "is not empty"
        raise FileExistsError(
            f"{folder} {what} and would be replaced: choose a new folder, such as {folder / 'map'}"
        )


def _is_publication(folder: Path) -> bool:
    """Say whether a folder is one that `publish` wrote."""
    try:
        listed = json.loads(Folder(folder).read(_LIST, _MOST_LIST) or b"")
    except ValueError:
        return False
    return isinstance(listed, dict) and listed.get("live") is False and "recordings" in listed


def _write_all(publication: Publication, folder: Path, progress: bool | None) -> None:
    recording = publication.recording
    for name, body in assets().items():
        (folder / name).write_bytes(body)
    listed = recordings([recording], live=False)
    (folder / _LIST).write_bytes(listed.to_bytes())
    below = folder / _DATA / recording.digest
    count = sum(1 for _ in islice(publication.files(), _MOST_FILES + 1))
    if count > _MOST_FILES:
        raise ValueError(
            f"that is more than {_MOST_FILES:,} files: choose some heads, or a lower depth"
        )
    made: set[Path] = set()
    with ThreadPoolExecutor(os.cpu_count(), initializer=one_thread_each) as pool:
        written = _in_batches(pool, recording, publication.files())
        for file, body in progressing(written, "files published", count, progress):
            path = below / file.path
            if path.parent not in made:
                path.parent.mkdir(parents=True, exist_ok=True)
                made.add(path.parent)
            path.write_bytes(body)


def _in_batches(
    pool: ThreadPoolExecutor, recording: Recording, files: Iterable[File]
) -> Iterator[tuple[File, bytes]]:
    """Yield files and their bytes, without having many of them in memory."""

    def body(file: File) -> bytes:
        return file.body(recording)

    left = iter(files)
    while batch := list(islice(left, _BATCH)):
        yield from zip(batch, pool.map(body, batch), strict=True)


def _check_complete(folder: Path, digest: str) -> None:
    """Make sure that there is everything that a viewer of the folder may ask for."""
    below = folder / _DATA / digest
    told = Info.model_validate_json((below / "info.json").read_bytes())
    missing = [file.path for file in files_of(told) if not (below / file.path).is_file()]
    assert not missing, f"{len(missing)} files were not written, such as {missing[0]}"
