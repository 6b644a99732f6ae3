"""`survey`: measure every head of a model over a corpus."""

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.atlas.about import About, SurveyPlan
from regard.atlas.atlas import ABOUT, PLAN, Atlas
from regard.atlas.atomic_write import PARTIAL, keep
from regard.atlas.cluster import counted_on_ray
from regard.atlas.extra import needed
from regard.atlas.loader import Loader, pretrained
from regard.atlas.report import report
from regard.atlas.shard_windows import REPEATS, Settings, prepare
from regard.atlas.surveyor import Surveyor
from regard.atlas.tables import as_arrow
from regard.atlas.tally import Tally
from regard.atlas.units import Shard, find_units, into_shards
from regard.progress import progressing

LENGTH = 512
"""Default tokens per window, unless the tokenizer's limit is lower."""

PARTS = "shards"

_BEGUN = f".{PLAN}.*{PARTIAL}"
"""Left by a survey that was killed while it wrote its plan."""

_REASONS = 9


def survey(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    model: str | Loader,
    *,
    length: int | None = None,
    field: str | None = None,
    sample: float = 1.0,
    seed: int = 0,
    effects: bool = False,
    batch_size: int = 32,
    shards: int | None = None,
    workers: int | None = None,
    address: str | None = None,
    gpus: float = 0.0,
    progress: bool | None = None,
) -> Atlas:
    """Measure every head of a model over a corpus.

    If interrupted, call it again with the same arguments: finished shards are kept. `batch_size`,
    `shards`, `workers`, `address` and `gpus` change the numbers by rounding only; of these,
    `shards` must stay the same to resume.

    Args:
        source: the corpus: a file, a folder, a glob, or a URL that fsspec supports. Text, JSON
            lines, Parquet and CoNLL-U are recognised by their suffixes. CoNLL-U has annotations:
            dependencies and mentions. Unreadable items are skipped, and counted in
            `Atlas.about.skipped`.
        out: the output folder, by convention NAME.atlas.
        model: the folder of a transformers model, its name on the Hugging Face hub, or a loader.
        length: maximum tokens per window; by default 512, or the tokenizer's limit.
        field: the field of the text in JSON lines and Parquet; by default the first existing one of
            "text", "content" and "body".
        sample: the fraction of documents to read, sampled by name.
        seed: the random seed.
        effects: whether to measure the effect of each head on the log-probability of the next
            token; takes a backward pass for each window, and a decoder. A loader must load it with
            its language-model head.
        batch_size: maximum windows per batch.
        shards: number of shards, which are retried as a whole. By default about a quarter of a
            mebibyte of text each.
        workers: number of Ray workers. By default this process does the work.
        address: the Ray cluster, as for `ray.init`; by default the one that this process is
            connected to, or RAY_ADDRESS, or a new one that listens on loopback only.
        gpus: GPUs per worker.
        progress: whether to show a progress bar; by default in terminals and notebooks.

    Raises:
        FileNotFoundError: the source does not exist.
        ValueError: an argument is invalid, or `out` has another survey.
    """
    if not 0.0 < sample <= 1.0:
        raise ValueError(f"sample must be above 0 and at most 1, got {sample}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    loader = pretrained(model, generates=effects) if isinstance(model, str) else model
    all_shards = into_shards(find_units(source, out), shards)
    all_shards.append(Shard(len(all_shards), (REPEATS,)))
    tokenizer: Any = loader.tokenizer()
    longest = _length(length, tokenizer.model_max_length)
    settings = Settings(longest, field, sample, seed, effects)
    plan = SurveyPlan.of(loader, os.fspath(source), settings, all_shards)
    folder = Path(out)
    parts = _begin(folder, plan)
    if (folder / ABOUT).exists():
        shutil.rmtree(parts, ignore_errors=True)
        return Atlas(folder)
    missing = [shard for shard in all_shards if not _part(parts, shard.id).exists()]
    if workers is None and address is None:
        found = _counted_here(missing, loader, tokenizer, settings, batch_size)
    else:
        found = counted_on_ray(
            missing,
            loader,
            settings,
            batch_size,
            workers=workers or 1,
            address=address,
            gpus=gpus,
        )
    for name, counted in progressing(found, "shards", len(missing), progress):
        keep(_part(parts, name), counted)
    return _finish(folder, plan, [_part(parts, shard.id) for shard in all_shards])


def _length(length: int | None, longest: int) -> int:
    if length is None:
        return min(LENGTH, longest)
    if length < 8:
        raise ValueError(f"length must be at least 8 tokens, got {length}")
    if length > longest:
        raise ValueError(f"length must be at most {longest}, the tokenizer's limit, got {length}")
    return length


def _part(parts: Path, shard: str) -> Path:
    return parts / f"{shard}.npz"


def _begin(folder: Path, plan: SurveyPlan) -> Path:
    """Return the folder of the tallies, and check that it is of the same survey."""
    parts = folder / PARTS
    if (folder / PLAN).exists():
        if (folder / PLAN).read_text(encoding="utf-8") != plan.as_text():
            raise ValueError(
                f"{folder} has another survey: model, text, settings or shards differ. Remove it, "
                "or choose another folder"
            )
    elif folder.exists() and not folder.is_dir():
        raise ValueError(f"out must be a folder, got the file {folder}")
    elif folder.exists() and not all(path.match(_BEGUN) for path in folder.iterdir()):
        raise ValueError(f"{folder} has other files: choose another folder")
    else:
        folder.mkdir(parents=True, exist_ok=True)
        keep(folder / PLAN, plan.as_text().encode())
    if not (folder / ABOUT).exists():
        parts.mkdir(exist_ok=True)
    return parts


def _counted_here(
    shards: Sequence[Shard], loader: Loader, tokenizer: Any, settings: Settings, batch_size: int
) -> Iterator[tuple[str, bytes]]:
    """Yield the name of each shard and the bytes of its tally, counted in this process."""
    if not shards:
        return
    surveyor = Surveyor(loader.model(), tokenizer, settings, batch_size)
    for shard in shards:
        windows, read = prepare(shard, tokenizer, settings)
        tally = surveyor.count(windows)
        tally.merge(read)
        yield shard.id, tally.to_bytes()


def _finish(folder: Path, plan: SurveyPlan, parts: Sequence[Path]) -> Atlas:
    """Merge the tallies, write tables and report, and last the metadata."""
    tally = Tally()
    for part in parts:
        tally.merge(Tally.load(part))
    if "rows" not in tally.sums:
        raise ValueError(f"{plan.source} has no text; {_reasons(tally)}")
    found = as_arrow(tally)
    for name, table in found.items():
        needed("pyarrow.parquet").write_table(table, folder / f"{name}.parquet")
    about = About.of(plan, tally)
    page = report(found, asdict(about))
    (folder / "report.html").write_text(page, encoding="utf-8")
    keep(folder / ABOUT, about.as_text().encode())
    shutil.rmtree(folder / PARTS)
    for left in folder.glob(f".*{PARTIAL}"):
        left.unlink()
    return Atlas(folder)


def _reasons(tally: Tally) -> str:
    reasons = [f"{reason} ({count})" for reason, count in tally.skipped.most_common(_REASONS)]
    if len(tally.skipped) > _REASONS:
        reasons.append(f"and {len(tally.skipped) - _REASONS} more")
    return "skipped: " + (", ".join(reasons) or "nothing")
