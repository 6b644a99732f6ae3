"""Read the documents of a unit."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from regard.atlas.annotated import AnnotatedDocument, read
from regard.atlas.extra import needed
from regard.atlas.units import UNIT, UNKNOWN, Unit, span_of
from regard.printable import well_formed

TEXT_FIELDS = ("text", "content", "body")
"""Default fields of the text in records."""

_NEW_DOCUMENT = b"# newdoc"
_NO_CHARACTER = re.compile("[\ud800-\udfff]")
_NO_UTF_8 = "characters that are no UTF-8"


@dataclass(frozen=True)
class Document:
    """A text.

    Attributes:
        name: unit and number, stable across runs.
        text: its text.
    """

    name: str
    text: str


def documents(
    unit: Unit, skipped: Counter[str], field: str | None = None
) -> Iterator[Document | AnnotatedDocument]:
    """Yield the documents of a unit.

    Unreadable items are skipped, and counted by reason.

    Args:
        unit: the unit to read.
        skipped: counts of skipped items.
        field: the field of the text in JSON lines and Parquet; by default the first existing one of
            "text", "content" and "body".
    """
    try:
        content = _rows_of(unit, field) if unit.kind == "parquet" else stretch(unit)
    except (OSError, ValueError, NotImplementedError) as error:
        skipped[f"unreadable: {unit.name} ({_said(error)})"] += 1
        return
    if not isinstance(content, bytes):
        yield from _texts(unit, iter(content), skipped, field)
        return
    # Files may begin with a byte order mark.
    text = content.decode("utf-8" if unit.number else "utf-8-sig", errors="replace")
    skipped[_NO_UTF_8] += text.count("\ufffd") - content.count(b"\xef\xbf\xbd")
    if unit.kind == "conllu":
        found, wrong = read(text)
        skipped.update(wrong)
        for document in found:
            yield replace(document, name=f"{unit.id}:{document.name}")
    elif unit.kind == "json lines":
        yield from _texts(unit, _records(text, skipped), skipped, field)
    else:
        # A stretch without a boundary belongs to the one before it.
        yield from _texts(unit, iter([text] if text or unit.size <= 0 else []), skipped, field)


def stretch(unit: Unit) -> bytes:
    """Return the bytes of a unit: from the first boundary in its stretch to the first after it.

    Every byte of a file is in exactly one of its units.

    Raises:
        OSError: the file can't be read.
    """
    with needed("fsspec").open(unit.url, "rb") as file:
        if unit.size == UNKNOWN:
            return file.read()
        find = _find_gap if unit.kind == "text" else partial(_find, boundary=_boundary(unit, file))
        span = span_of(unit.size)
        start, stop = (
            find(file, place) if 0 < place < unit.size else min(place, unit.size)
            for place in (unit.number * span, (unit.number + 1) * span)
        )
        file.seek(start)
        return file.read(max(0, stop - start))


def _texts(
    unit: Unit, records: Iterator[Any], skipped: Counter[str], field: str | None
) -> Iterator[Document]:
    for number, record in enumerate(records):
        text = record if isinstance(record, str) else _text_of(record, field)
        if text is None:
            skipped["record without text"] += 1
        elif not text.strip():
            skipped["empty document"] += 1
        else:
            # JSON may have lone surrogates.
            text, wrong = _NO_CHARACTER.subn("\ufffd", text)
            skipped[_NO_UTF_8] += wrong
            yield Document(f"{unit.id}:{number}", text)


def _text_of(record: Any, field: str | None) -> str | None:
    if not isinstance(record, dict):
        return None
    names = TEXT_FIELDS if field is None else (field,)
    found = next((record[name] for name in names if name in record), None)
    return found if isinstance(found, str) else None


def _records(text: str, skipped: Counter[str]) -> Iterator[Any]:
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            skipped["line that is no JSON"] += 1


def _rows_of(unit: Unit, field: str | None) -> list[str | None]:
    parquet, fsspec = needed("pyarrow.parquet"), needed("fsspec")
    with fsspec.open(unit.url, "rb") as file:
        content = parquet.ParquetFile(file)
        names = TEXT_FIELDS if field is None else (field,)
        name = next((name for name in names if name in content.schema_arrow.names), None)
        if name is None:
            raise ValueError(f"no column {' or '.join(names)}: pass field")
        if content.num_row_groups == 0:
            return []
        rows = content.read_row_group(unit.number, columns=[name]).column(0).to_pylist()
    return [row if isinstance(row, str) else None for row in rows]


def _find_gap(file: Any, position: int) -> int:
    """Return where to split a text, at a position or at most a unit after it.

    After a blank line, else after a line, else after a space, else between characters.
    """
    file.seek(position - 2)
    near = file.read(UNIT + 2)
    for gap in (b"\n\n", b"\n", b" "):
        found = near.find(gap, 2 - len(gap))
        if found >= 0:
            return position - 2 + found + len(gap)
    # UTF-8 continuation bytes begin with the bits 10; there are at most three per character.
    after = near[2:6]
    return position + next((i for i, byte in enumerate(after) if byte >> 6 != 0b10), len(after))


def _boundary(unit: Unit, file: Any) -> bytes:
    """Return the end of a record: of a JSON line, a sentence, or a document of sentences."""
    if unit.kind == "json lines":
        return b"\n"
    file.seek(0)
    return b"\n\n" + _NEW_DOCUMENT if _NEW_DOCUMENT in file.read(UNIT) else b"\n\n"


def _find(file: Any, position: int, boundary: bytes) -> int:
    """Return the start of the first record at a position or later, or the end of the file."""
    begin = max(0, position - len(boundary))
    file.seek(begin)
    seen = b""
    while more := file.read(UNIT):
        seen += more
        found = seen.find(boundary)
        if found >= 0:
            return begin + found + len(boundary.removesuffix(_NEW_DOCUMENT))
        kept = max(0, len(seen) - len(boundary) + 1)
        begin, seen = begin + kept, seen[kept:]
    return begin + len(seen)


def _said(error: Exception) -> str:
    return well_formed((str(error).strip() or type(error).__name__).split("\n")[0][:200])
