"""`survey`: what every head of a model does, over a corpus."""

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
from regard.matrix.progress import progressing

LENGTH = 512
"""How many tokens a window has, unless one says so or the tokenizer knows of fewer."""

PARTS = "shards"

_BEGUN = f".{PLAN}.*{PARTIAL}"
"""What one leaves that was killed while it wrote its plan."""

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
    batch_size: int = 32,
    shards: int | None = None,
    workers: int | None = None,
    address: str | None = None,
    gpus: float = 0.0,
    progress: bool | None = None,
) -> Atlas:
    """Measure what every head of a model does, over a corpus.

    A survey that was interrupted is continued when it is started again with the same arguments:
    what was counted is not counted again. How the work is cut and who does it (`batch_size`,
    `shards`, `workers`, `address`, `gpus`) changes the numbers by rounding only; of these, `shards`
    must stay the same for a survey that is continued.

    Args:
        source: what to read: a file, a folder, a pattern with `*`, or a URL that fsspec knows.
            Text, JSON lines, Parquet and CoNLL-U are told by the ends of names. CoNLL-U brings
            annotations: relations between words, and who is mentioned. What can't be read is left
            out, and counted in `Atlas.about.skipped`.
        out: the folder to write, by custom NAME.atlas.
        model: a folder with a model of transformers, or its name on the Hugging Face hub; or how
            to load it.
        length: how many tokens a window has, at most; 512 by default, or what the tokenizer says.
        field: which field of JSON lines and column of Parquet has the text; by default the first of
            "text", "content" and "body" that is there.
        sample: the share of documents to read, drawn by chance from their names.
        seed: what chance begins with.
        batch_size: how many windows a worker runs at once, at most.
        shards: in how many parts the work is cut, each of which is lost and done again when a
            worker dies. By default about a quarter of a mebibyte of text each.
        workers: how many workers of a Ray cluster to use. By default the work is done in this
            process.
        address: the Ray cluster, as for `ray.init`; by default the one that this process is
            connected to, or that RAY_ADDRESS names, or a new one that listens to this machine
            alone.
        gpus: how much of a GPU each worker takes.
        progress: whether to show a progress bar; by default in terminals and notebooks.

    Raises:
        FileNotFoundError: there is nothing to read.
        ValueError: an argument is wrong, or `out` holds another survey.
    """
    if not 0.0 < sample <= 1.0:
        raise ValueError(f"sample must be above 0 and at most 1, got {sample}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    loader = pretrained(model) if isinstance(model, str) else model
    all_shards = into_shards(find_units(source, out), shards)
    all_shards.append(Shard(len(all_shards), (REPEATS,)))
    tokenizer: Any = loader.tokenizer()
    settings = Settings(_length(length, tokenizer.model_max_length), field, sample, seed)
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
        raise ValueError(
            f"length must be at most {longest}, as many tokens as the tokenizer says that the "
            f"model takes, got {length}"
        )
    return length


def _part(parts: Path, shard: str) -> Path:
    return parts / f"{shard}.npz"


def _begin(folder: Path, plan: SurveyPlan) -> Path:
    """Return the folder of what is counted, and make sure that it is of this very survey."""
    parts = folder / PARTS
    if (folder / PLAN).exists():
        if (folder / PLAN).read_text(encoding="utf-8") != plan.as_text():
            raise ValueError(
                f"{folder} holds another survey: of another model or text, of one that has changed "
                "since, with other settings or other shards. Remove it, or write to another folder"
            )
    elif folder.exists() and not folder.is_dir():
        raise ValueError(f"out must be a folder, but {folder} is a file: write to another folder")
    elif folder.exists() and not all(path.match(_BEGUN) for path in folder.iterdir()):
        raise ValueError(f"{folder} is not empty, and no survey: write to another folder")
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
    surveyor = Surveyor(loader.model(), tokenizer, batch_size=batch_size, seed=settings.seed)
    for shard in shards:
        windows, read = prepare(shard, tokenizer, settings)
        tally = surveyor.count(windows)
        tally.merge(read)
        yield shard.id, tally.to_bytes()


def _finish(folder: Path, plan: SurveyPlan, parts: Sequence[Path]) -> Atlas:
    """Merge what was counted and write tables and report; that it is finished is said last."""
    tally = Tally()
    for part in parts:
        tally.merge(Tally.load(part))
    if "rows" not in tally.sums:
        raise ValueError(f"there is no text in {plan.source}; {_reasons(tally)}")
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
    return "left out: " + (", ".join(reasons) or "nothing")
