"""`open`: a recording, checked before anything is read of it."""

from os import PathLike
from pathlib import Path
from typing import Any

import zarr
from pydantic import BaseModel, ValidationError

from regard.recording.errors import RecordingError
from regard.recording.recording import Recording
from regard.recording.schema import VERSION, CallFacts, Facts
from regard.recording.stored import CallArrays
from regard.recording.text import RecordedText

PARTIAL = ".partial"
_ATTRIBUTE = "regard"


def open(path: str | PathLike[str]) -> Recording:
    """Open a recording.

    Nothing but its description is read: queries, keys and maps are when they are looked at.

    Args:
        path: the folder, or a URL that fsspec knows, such as `https://…/book.regard` or
            `s3://…/book.regard`.

    Raises:
        RecordingError: there is none, it is damaged or incomplete, or a later version wrote it.
    """
    where = str(path)
    root = _root(where)
    data = _attribute(root, where)
    version = data.get("version")
    if isinstance(version, int) and version > VERSION:
        raise RecordingError(
            f"{where} has version {version} of the format, and this Regard reads up to {VERSION}: "
            "install a later one"
        )
    facts = _validated(Facts, data, where)
    if not facts.complete:
        raise RecordingError(
            f"{where} is incomplete: recording it was interrupted; record it once more to the same "
            "path, and what is there is not done again"
        )
    calls = [_call(root, number, where, facts) for number in range(facts.calls)]
    texts = [
        RecordedText(one, _group(root, f"texts/{number}", where))
        for number, one in enumerate(facts.texts)
    ]
    every = _group(root, "all", where) if facts.all_cells else None
    name = where.rstrip("/").split("/")[-1].removesuffix(".regard")
    return Recording(name, facts, calls, texts, every)


def _root(where: str) -> zarr.Group:
    is_url = "://" in where
    if not is_url:
        path = Path(where).expanduser()
        where = str(path)
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
        if not path.is_dir() or not (path / "zarr.json").is_file():
            what = "is no recording" if path.exists() else "is not there"
            name = path.name if path.suffix else "book.regard"
            raise RecordingError(
                f'{where} {what}: make one with regard.save(seen, "{name}", …) or `regard record`'
            )
    try:
        return zarr.open_group(where, mode="r")
    except ImportError as error:
        raise ImportError(f"opening {where} needs fsspec: pip install fsspec ({error})") from error
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise RecordingError(f"{where} can't be opened: {_said(error)}") from error


def _call(root: zarr.Group, number: int, where: str, facts: Facts) -> CallArrays:
    name = f"calls/{number:04d}"
    group = _group(root, name, where)
    call = CallArrays(
        _validated(CallFacts, _attribute(group, f"{where}/{name}"), f"{where}/{name}"), group
    )
    its = call.facts
    for which, size in ((its.query_text, its.queries), (its.key_text, its.keys)):
        if which >= len(facts.texts) or facts.texts[which].tokens != size:
            raise RecordingError(f"{where}/{name} does not fit its text: record it again")
    if its.index != number:
        raise RecordingError(f"{where}/{name} says that it is call {its.index}: record it again")
    call.check()
    return call


def _group(root: zarr.Group, name: str, where: str) -> zarr.Group:
    try:
        found = root[name]
    except KeyError:
        found = None
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise RecordingError(f"{where}/{name} is damaged: {_said(error)}") from error
    if not isinstance(found, zarr.Group):
        raise RecordingError(f"{where} is damaged: it has no {name}; record it again")
    return found


def _attribute(group: zarr.Group, where: str) -> dict[str, Any]:
    data = group.attrs.asdict().get(_ATTRIBUTE)
    if not isinstance(data, dict):
        raise RecordingError(f"{where} is no recording of Regard: it does not say that it is one")
    return data


def _validated(kind: Any, data: dict[str, Any], where: str) -> Any:
    try:
        model: BaseModel = kind.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "its description"
        raise RecordingError(
            f"{where} is damaged: {place}: {first['msg']}; record it again"
        ) from error
    return model


def _said(error: Exception) -> str:
    return str(error).split("\n")[0] or type(error).__name__
