"""The metadata of an atlas."""

import dataclasses
import hashlib
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from regard.atlas.loader import Loader
from regard.atlas.shard_windows import Settings
from regard.atlas.tally import Tally
from regard.atlas.units import Shard
from regard.printable import well_formed

VERSION = 1
FORMAT = "regard atlas"


@dataclass(frozen=True)
class About:
    """The metadata of an atlas.

    Attributes:
        model: the name of the model.
        source: the name of the corpus, without the folders that it is in.
        modules: the module of each layer.
        layers: number of layers with attention.
        heads: maximum number of heads per layer.
        documents: number of documents. A long text counts as one per 64 KiB or so.
        documents_cut: number of documents longer than a window.
        windows: number of windows.
        tokens: number of tokens, special ones included.
        length: maximum tokens per window.
        field: the field of the text in records, if it was given.
        sample: the sampled fraction of documents.
        seed: the random seed.
        skipped: counts of skipped items, by reason.
        date: the date of the survey.
        versions: versions of Regard and its dependencies.
        effects: whether the effects of heads were measured.
        format: the name of the format.
        version: the version of the format.
    """

    model: str
    source: str
    modules: list[str]
    layers: int
    heads: int
    documents: int
    documents_cut: int
    windows: int
    tokens: int
    length: int
    field: str | None
    sample: float
    seed: int
    skipped: dict[str, int]
    date: str
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    effects: bool = False
    format: str = FORMAT
    version: int = VERSION

    @classmethod
    def of(cls, plan: "SurveyPlan", tally: Tally) -> "About":
        """Return the metadata of a finished survey."""
        counts = {name: int(tally.sums.get(name, 0)) for name in ("documents", "documents_cut")}
        entropy = tally.sums["entropy"]
        return cls(
            model=plan.model,
            source=plan.source,
            modules=tally.modules,
            layers=entropy.shape[0],
            heads=entropy.shape[1],
            **counts,
            windows=int(tally.sums["windows"]),
            tokens=int(tally.sums["rows"]),
            **asdict(plan.settings),
            skipped=dict(sorted(tally.skipped.items())),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            versions={"python": platform.python_version()}
            | {name: version(name) for name in ("regard", "torch", "transformers")},
        )

    @classmethod
    def read(cls, path: Path) -> "About":
        """Read a file.

        Raises:
            ValueError: it is invalid, or of a later version.
        """
        try:
            found: Any = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} must be JSON: make the atlas again") from error
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ValueError(f"{path} is not of an atlas: pass the output folder of `survey`")
        if not isinstance(found.get("version"), int) or found["version"] > VERSION:
            raise ValueError(
                f"{path} has format version {found.get('version')}, and this Regard reads up to "
                f"{VERSION}: upgrade Regard"
            )
        # Atlases that were made before there were effects have none.
        found.setdefault("effects", False)
        names = {one.name for one in fields(cls)}
        missing = names - found.keys()
        if missing:
            raise ValueError(f"{path} lacks {', '.join(sorted(missing))}: make the atlas again")
        return cls(**{name: found[name] for name in names})

    def as_text(self) -> str:
        """Return JSON."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False)


@dataclass(frozen=True)
class SurveyPlan:
    """The inputs of a survey, which must be the same when it is resumed.

    Attributes:
        model: the name of the model.
        stamp: a digest of the model's files.
        source: the name of the corpus.
        settings: its settings.
        shards: number of shards.
        digest: a digest of the content of all shards.
    """

    model: str
    stamp: str
    source: str
    settings: Settings
    shards: int
    digest: str

    @classmethod
    def of(
        cls, loader: Loader, source: str, settings: Settings, shards: Sequence[Shard]
    ) -> "SurveyPlan":
        """Return the plan for some shards."""
        digest = hashlib.sha256("\n".join(shard.id for shard in shards).encode()).hexdigest()
        model, corpus = well_formed(loader.name), well_formed(corpus_name(source))
        return cls(model, loader.stamp, corpus, settings, len(shards), digest)

    def as_text(self) -> str:
        """Return the plan as JSON."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False)


def corpus_name(source: str) -> str:
    """Return the name of a corpus, without folders and passwords, as reports are for others.

    >>> corpus_name("/home/me/books/"), corpus_name("/home/me/books/**/*.txt")
    ('books', 'books/**/*.txt')
    >>> corpus_name("https://me:secret@host/books/emma.txt?key=secret")
    'emma.txt'
    """
    if "://" in source:
        path = urlsplit(source).path
    else:
        path = Path(os.path.abspath(os.path.expanduser(source))).as_posix()
    parts = [part for part in path.split("/") if part]
    wild = (number for number, part in enumerate(parts) if any(one in part for one in "*?["))
    # A pattern of files says little without the folder that it is in.
    return "/".join(parts[max(0, next(wild, len(parts)) - 1) :])
