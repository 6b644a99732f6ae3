"""Estimate the size of a publication."""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from regard.server.file_layout import File, LineFile, RowsFile, TileFile
from regard.server.job_queue import one_thread_each
from regard.server.publication import Publication, files_of, head_files

_SAMPLE = 6
"""Sampled files of each kind and level."""

_SAMPLE_OF_ALL = 2
"""Sampled files of the mean over all heads, which take seconds."""


@dataclass(frozen=True)
class Estimate:
    """The size of a publication.

    Attributes:
        files: exact number of files.
        bytes: estimated bytes.
        seconds: estimated seconds on one core.
    """

    files: int
    bytes: int
    seconds: float

    def __str__(self) -> str:
        size = f"{self.bytes / 1e6:,.1f} MB" if self.bytes < 1e9 else f"{self.bytes / 1e9:,.1f} GB"
        soon = "less than a minute" if self.seconds < 50 else f"about {self.seconds / 60:,.0f} min"
        return f"{self.files:,} files, about {size}, {soon} of computing"


def estimate(publication: Publication) -> Estimate:
    """Count the files of a publication, and estimate size and time from a sample."""
    chance = random.Random(0)
    counts: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    samples: defaultdict[str, list[File]] = defaultdict(list)
    for file, times in _files_once(publication):
        kind = _kind(file)
        counts[kind] += times
        seen[kind] += 1
        most = _SAMPLE_OF_ALL if _is_of_all(file) else _SAMPLE
        # Reservoir sampling.
        if len(samples[kind]) < most:
            samples[kind].append(file)
        elif (place := chance.randrange(seen[kind])) < most:
            samples[kind][place] = file
    size, seconds = 0.0, 0.0
    # As `publish` computes them.
    with ThreadPoolExecutor(1, initializer=one_thread_each) as pool:
        for kind, sample in samples.items():
            start = time.process_time()
            bodies = [pool.submit(file.body, publication.recording) for file in sample]
            total = sum(len(body.result()) for body in bodies)
            seconds += (time.process_time() - start) / len(sample) * counts[kind]
            size += total / len(sample) * counts[kind]
    return Estimate(sum(counts.values()), round(size), seconds)


def _files_once(publication: Publication) -> Iterator[tuple[File, int]]:
    """Yield files with the number of similar ones: all heads of a call have as many."""
    told = publication.info
    nothing = publication.published.model_copy(update={"heads": []})
    for file in files_of(told.model_copy(update={"published": nothing})):
        yield file, 1
    calls = [None if one is None else one.call for one in publication.heads]
    times = Counter(calls)
    for call, one in dict(zip(calls, publication.heads, strict=True)).items():
        for file in head_files(told, one):
            yield file, times[call]


def _kind(file: File) -> str:
    """Return a key for files of similar size and time."""
    level = file.level if isinstance(file, TileFile | LineFile) else ""
    return f"{type(file).__name__} {level}{' of all' if _is_of_all(file) else ''}"


def _is_of_all(file: File) -> bool:
    """Return whether a file is of the mean over all heads."""
    if isinstance(file, TileFile):
        return file.tileset.of is None
    return isinstance(file, RowsFile) and file.of is None
