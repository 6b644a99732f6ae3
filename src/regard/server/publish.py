"""Write a map as static files."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from os import PathLike
from pathlib import Path

from regard.progress import progressing
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
"""Maximum bytes of that list."""

_MOST_FILES = 2**22
_BATCH = 64
"""Files per batch."""


def publish(
    recording: Recording,
    folder: str | PathLike[str],
    *,
    heads: Sequence[str] = (ALL,),
    depth: int | None = None,
    pools: Sequence[str] = POOLS,
    progress: bool | None = None,
) -> Path:
    """Write the map of a recording as a folder for any web server.

    `regard.server.estimate` estimates its size. The folder appears when it is complete, and
    replaces a former publication.

    Args:
        recording: the recording.
        folder: the output folder: new, empty, or a former publication.
        heads: names such as "18.6" or "18.mean"; "mean" for the mean over all heads; "all" for all
            of these.
        depth: the deepest zoom level; by default the deepest stored one.
        pools: what cells show: "mean" and "max" of weights, and "effect" in addition.
        progress: whether to show a progress bar; by default in terminals and notebooks.

    Returns:
        The folder.

    Raises:
        FileExistsError: the folder has other files.
        ValueError: there is no such head, level or pool.
        RecordingError: the recording is damaged.
    """
    return write(planned(recording, heads=heads, depth=depth, pools=pools), folder, progress)


def write(
    publication: Publication, folder: str | PathLike[str], progress: bool | None = None
) -> Path:
    """Write a publication; see `publish`."""
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
    """Check that a folder is new, empty, or a former publication.

    Raises:
        FileExistsError: it is a file, or has other files.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise FileExistsError(f"{folder} is a file: choose a folder")
    found = {one.name for one in folder.iterdir()}
    others = sorted(found - _SITE.names)
    if others or (found and not _is_publication(folder)):
        what = f"has other files ({', '.join(others[:3])})" if others else "is not empty"
        raise FileExistsError(f"{folder} {what}: choose a new folder, such as {folder / 'map'}")


def _is_publication(folder: Path) -> bool:
    """Return whether `publish` wrote a folder."""
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
            f"a publication must have at most {_MOST_FILES:,} files: choose fewer heads or a lower "
            "depth"
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
    """Yield files and their bytes, computed in batches."""

    def body(file: File) -> bytes:
        return file.body(recording)

    left = iter(files)
    while batch := list(islice(left, _BATCH)):
        yield from zip(batch, pool.map(body, batch), strict=True)


def _check_complete(folder: Path, digest: str) -> None:
    """Check that every file exists that the viewer may request."""
    below = folder / _DATA / digest
    told = Info.model_validate_json((below / "info.json").read_bytes())
    missing = [file.path for file in files_of(told) if not (below / file.path).is_file()]
    assert not missing, f"{len(missing)} files were not written, such as {missing[0]}"
