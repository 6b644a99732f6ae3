"""What an atlas says of itself: where its numbers come from."""

import dataclasses
import hashlib
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from regard.atlas.loader import Loader
from regard.atlas.shard_windows import Settings
from regard.atlas.tally import Tally
from regard.atlas.units import Shard
from regard.printable import well_formed

VERSION = 1
FORMAT = "regard atlas"


@dataclass(frozen=True)
class About:
    """Where the numbers of an atlas come from.

    Attributes:
        model: what the model is called.
        source: what was read.
        modules: the module of each layer.
        layers: how many layers with attention the model has.
        heads: how many heads a layer has, at most.
        documents: how many documents were read. A long text counts as one for every 64 KiB or so.
        documents_cut: how many of them were longer than a window.
        windows: how many windows were run.
        tokens: how many tokens they have, special ones included.
        length: how many tokens a window has, at most.
        field: which field of records has the text, if that was said.
        sample: the share of documents that was read.
        seed: what chance began with.
        skipped: what was left out, by the reason.
        date: when the survey was finished.
        versions: of what it was made with.
        format: that it is an atlas.
        version: of the format.
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
    format: str = FORMAT
    version: int = VERSION

    @classmethod
    def of(cls, plan: "SurveyPlan", tally: Tally) -> "About":
        """Return what there is to say of a finished survey."""
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
        """Return what a file says.

        Raises:
            ValueError: it is of no atlas, or of one of a later version.
        """
        try:
            found: Any = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is no JSON: make the atlas again") from error
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ValueError(f"{path} is not of an atlas: pass a folder that `survey` has written")
        if not isinstance(found.get("version"), int) or found["version"] > VERSION:
            raise ValueError(
                f"{path} has version {found.get('version')}, this Regard reads up to {VERSION}: "
                "install a later Regard"
            )
        names = {one.name for one in fields(cls)}
        missing = names - found.keys()
        if missing:
            raise ValueError(f"{path} does not say {', '.join(sorted(missing))}: make it again")
        return cls(**{name: found[name] for name in names})

    def as_text(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False)


@dataclass(frozen=True)
class SurveyPlan:
    """What a survey is about to count: whoever continues it must mean the same.

    Attributes:
        model: what the model is called.
        stamp: what changes when the model does.
        source: what is read.
        settings: what decides which windows there are.
        shards: how many there are.
        digest: tells the content of all shards.
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
        model, source = well_formed(loader.name), well_formed(source)
        return cls(model, loader.stamp, source, settings, len(shards), digest)

    def as_text(self) -> str:
        """Return the plan as JSON."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False)
