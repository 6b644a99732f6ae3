"""`open`: open and validate a recording."""

import json
import os
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from regard.errors import first_line
from regard.recording.digest import digest_of, digests_without_sums
from regard.recording.errors import RecordingError
from regard.recording.files import (
    DESCRIPTION,
    MOST_DESCRIPTION,
    MOST_SUMS,
    SUMS,
    Files,
    FileSource,
    Folder,
    Remote,
    parsed,
)
from regard.recording.layout import recording_specs, stored_arrays
from regard.recording.recording import Recording
from regard.recording.schema import ATTRIBUTE, MOST_HEADS, VERSION, CallFacts, Facts
from regard.recording.stored import CallArrays
from regard.recording.text import RecordedText

PARTIAL = ".partial"


def open(path: str | PathLike[str]) -> Recording:
    """Open a recording.

    Reads the description only; queries, keys and maps are read on demand.

    Args:
        path: the folder, or a URL that fsspec supports, such as `https://…/book.regard` or
            `s3://…/book.regard`.

    Raises:
        RecordingError: it is missing, damaged, incomplete, or of a later version.
    """
    where = os.fspath(path)
    source = _source(where)
    description = _description(source, where)
    data = _attribute(description, where)
    version = data.get("version")
    if isinstance(version, int) and version > VERSION:
        raise RecordingError(
            f"{where} has format version {version}, and this Regard reads up to {VERSION}: "
            "upgrade Regard"
        )
    facts: Facts = _validated(Facts, data, where)
    if not facts.complete:
        raise RecordingError(
            f"{where} is incomplete: recording it was interrupted; record it once more to the same "
            "path, and what is there is not done again"
        )
    metadata = _metadata(description, where)
    calls = [_call(metadata, number, where, facts) for number in range(facts.calls)]
    if sum(call.heads for call in calls) > MOST_HEADS:
        raise RecordingError(f"{where} must have at most {MOST_HEADS:,} heads in total")
    if any(call.effects for call in calls) != (facts.target is not None):
        raise RecordingError(f"{where} is damaged: effects need a target, and a target effects")
    try:
        sums = source.read(SUMS, MOST_SUMS)
        files = Files(source, None if sums is None else parsed(sums), fixed=True)
        found = _recording(where, facts, calls, metadata, files)
        _check_digest(description, sums, facts, calls)
        return found
    except RecordingError as error:
        raise RecordingError(f"{where}: {error}") from error


def _source(where: str) -> FileSource:
    """Return the folder or URL of a recording."""
    if "://" in where and not where.startswith("file://"):
        try:
            return Remote(where)
        except ImportError as error:
            raise ImportError(
                f"opening {where} needs fsspec: pip install fsspec ({error})"
            ) from error
        except (OSError, ValueError) as error:
            raise RecordingError(f"can't open {where}: {first_line(error)}") from error
    path = Path(where.removeprefix("file://")).expanduser()
    if not path.exists() and path.with_name(path.name + PARTIAL).exists():
        raise RecordingError(
            f"{where} is incomplete: recording it was interrupted; record it once more to the "
            "same path, and what is there is not done again"
        )
    if path.is_file():
        raise RecordingError(
            f"{where} is a file, and a recording is a folder: make one with `regard record "
            f"{path.name} --model MODEL --out {path.stem}.regard`"
        )
    if not path.is_dir() or not os.path.lexists(path / DESCRIPTION):
        what = "is not a recording" if path.exists() else "does not exist"
        name = path.name if path.suffix else "book.regard"
        raise RecordingError(
            f'{where} {what}: make one with regard.save(seen, "{name}", …) or `regard record`'
        )
    return Folder(path)


def _description(source: FileSource, where: str) -> dict[str, Any]:
    """Read the description of a recording.

    It has the consolidated metadata of all arrays; their own zarr.json files are not read.
    """
    try:
        data = source.read(DESCRIPTION, MOST_DESCRIPTION)
        if data is None:
            raise ValueError(f"{DESCRIPTION} is missing")
        found = json.loads(data, object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"can't open {where}: {first_line(error)}") from error
    if not isinstance(found, dict) or found.get("zarr_format") != 3:
        raise RecordingError(f"{where} is not a recording of Regard: it must be a Zarr 3 group")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; duplicate keys are an error."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"{DESCRIPTION} has a duplicate key")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{DESCRIPTION} must have finite numbers, got {name}")


def _metadata(description: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the metadata of each group and array, by path."""
    found = description.get("consolidated_metadata")
    found = found.get("metadata") if isinstance(found, dict) else None
    if not isinstance(found, dict):
        raise RecordingError(f"{where} is damaged: it does not list its arrays; record it again")
    return found


def _call(metadata: Mapping[str, Any], number: int, where: str, recorded: Facts) -> CallFacts:
    name = f"calls/{number:04d}"
    if name not in metadata:
        raise RecordingError(f"{where} is damaged: it has no {name}; record it again")
    facts: CallFacts = _validated(
        CallFacts, _attribute(metadata[name], f"{where}/{name}"), f"{where}/{name}"
    )
    texts = recorded.texts
    for which, size in ((facts.query_text, facts.queries), (facts.key_text, facts.keys)):
        if which >= len(texts) or texts[which].tokens != size:
            raise RecordingError(
                f"{where}/{name} does not fit the length of its text: record it again"
            )
    if facts.index != number:
        raise RecordingError(f"{where}/{name} has index {facts.index}: record it again")
    return facts


def _check_digest(
    description: dict[str, Any], sums: bytes | None, facts: Facts, calls: list[CallFacts]
) -> None:
    """Raise RecordingError if the digest does not match the content."""
    try:
        if sums is None:
            known = digests_without_sums(facts, calls)
        else:
            known = {digest_of(description, sums)}
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"it is damaged: {first_line(error)}") from error
    if facts.digest not in known:
        raise RecordingError("it is damaged: its digest does not match its content")


def _recording(
    where: str, facts: Facts, calls: list[CallFacts], metadata: Mapping[str, Any], files: Files
) -> Recording:
    """Return a recording with validated arrays."""
    specs = recording_specs(metadata, facts, calls)
    stored = {folder: stored_arrays(files, folder, own) for folder, own in specs.items()}
    found = [CallArrays(call, stored[f"calls/{number:04d}"]) for number, call in enumerate(calls)]
    texts = [RecordedText(text, stored[f"texts/{n}"]) for n, text in enumerate(facts.texts)]
    name = where.rstrip("/").split("/")[-1].removesuffix(".regard")
    return Recording(name, facts, found, texts, stored["all"])


def _attribute(group: object, where: str) -> dict[str, Any]:
    attributes = group.get("attributes") if isinstance(group, dict) else None
    data = attributes.get(ATTRIBUTE) if isinstance(attributes, dict) else None
    if not isinstance(data, dict):
        raise RecordingError(
            f"{where} is not a recording of Regard: it has no attribute {ATTRIBUTE!r}"
        )
    return data


def _validated(kind: Any, data: dict[str, Any], where: str) -> Any:
    try:
        model: BaseModel = kind.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "description"
        raise RecordingError(
            f"{where} is damaged: {place}: {first['msg']}; record it again"
        ) from error
    return model
