"""What somebody may leave as `NAME.partial` where another will record to NAME, by name.

Each changes what an interrupted run has left, in place. The next run removes it, or refuses it.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from regard import AttentionMatrix
from regard.calls import AttentionCall
from regard.recording import save
from tests.hostile.mutations import SECRET, facts

Partial = Callable[[Path], object]
PARTIALS: dict[str, Partial] = {}
TOKENS = 7


def record(path: Path, *, tokens: str = "public", calls: int = 2, keys: int = TOKENS) -> None:
    """Record some calls, to the same numbers each time."""
    x = torch.randn(1, 2, max(TOKENS, keys), 4, generator=torch.Generator().manual_seed(0))
    matrix = AttentionMatrix(x[:, :, :TOKENS], x[:, :, :keys])
    kind = "self" if keys == TOKENS else "cross"
    save(
        [AttentionCall.of(matrix, f"layers.{layer}", kind) for layer in range(calls)],
        path,
        tokens=[f"{tokens}{number}" for number in range(TOKENS)],
        source=None if kind == "self" else [f"{SECRET.decode()}{n}" for n in range(keys)],
        progress=False,
    )


def _another(**options: Any) -> Partial:
    """Leave another recording."""

    def leave(left: Path) -> None:
        shutil.rmtree(left)
        record(left, **options)

    return leave


PARTIALS["another text"] = _another(tokens=SECRET.decode())
PARTIALS["an encoder-decoder"] = _another(tokens=SECRET.decode(), keys=11)
PARTIALS["more calls"] = _another(calls=3)
PARTIALS["more calls of another text"] = _another(tokens=SECRET.decode(), calls=3)


# Files that are none of a recording's.


def _written(name: str, content: bytes = SECRET) -> Partial:
    def write(left: Path) -> None:
        (left / name).parent.mkdir(parents=True, exist_ok=True)
        (left / name).write_bytes(content)

    return write


for _name in (
    "notes.txt",
    "a\nb",
    "zarr.json.partial",
    "all/notes.txt",
    "texts/1/tokens/c/0",
    "texts/0/notes.txt",
    "calls/notes.txt",
    "calls/0002/query/c/0/0/0",
    "calls/0000/notes.txt",
    "calls/0000/query/notes.txt",
    "calls/0000/query/c/0/0/1",
    "calls/0000/query/c/0/0/x/more",
    "calls/0000/entropy/c/0/00",
    "calls/0000/mean/notes.txt",
    "calls/0000/a\nb",
):
    PARTIALS[f"a file {_name!r}"] = _written(_name)


# Links, and what is no file.

OUTSIDE = ("0", "calls", "c", "texts", "query", "all")


def _outside(left: Path) -> Path:
    """Return a folder beside, with names of a recording."""
    found = left.parent / "victim"
    for name in OUTSIDE:
        (found / name).mkdir(parents=True, exist_ok=True)
        (found / name / "precious.txt").write_bytes(SECRET)
    return found


def _removed(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _linked(name: str, *, there: bool = True) -> Partial:
    def link(left: Path) -> None:
        outside = _outside(left) if there else left.parent / "nowhere"
        _removed(left / name)
        (left / name).parent.mkdir(parents=True, exist_ok=True)
        (left / name).symlink_to(outside)

    return link


def _other_name(name: str) -> Partial:
    def link(left: Path) -> None:
        precious = _outside(left) / "0/precious.txt"
        _removed(left / name)
        os.link(precious, left / name)

    return link


def _piped(name: str) -> Partial:
    def make(left: Path) -> None:
        _removed(left / name)
        os.mkfifo(left / name)

    return make


for _name in ("", "all", "calls", "texts", "texts/0", "calls/0000", "calls/0000/query", "a\nb"):
    PARTIALS[f"a link {_name!r}"] = _linked(_name)
    PARTIALS[f"a link {_name!r} to nowhere"] = _linked(_name, there=False)
for _name in ("zarr.json", "calls/zarr.json", "calls/0000/zarr.json", "calls/0000/query/c/0/0/0"):
    PARTIALS[f"a link {_name!r}"] = _linked(_name)
    PARTIALS[f"a pipe {_name!r}"] = _piped(_name)
    PARTIALS[f"another name of {_name!r}"] = _other_name(_name)
PARTIALS["another name of sums"] = _other_name("calls/0000/query/SHA256SUMS")


# What is said of it.


def _said(name: str, edit: Callable[[dict[str, Any]], object]) -> Partial:
    def change(left: Path) -> None:
        file = left / name
        data = json.loads(file.read_bytes())
        edit(data)
        file.write_text(json.dumps(data))

    return change


def _update(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda data: data.update(values)


for _name in ("", "calls/", "texts/", "texts/0/", "calls/0000/", "calls/0000/query/"):
    _file = f"{_name}zarr.json"
    _note = {"note": SECRET.decode()}
    PARTIALS[f"{_file} more"] = _said(_file, _update(more=_note))
    PARTIALS[f"{_file} noted"] = _said(_file, lambda data, n=_note: data["attributes"].update(n))
    PARTIALS[f"{_file} Zarr 2"] = _said(_file, _update(zarr_format=2))
    PARTIALS[f"{_file} a kind"] = _said(_file, _update(node_type="x"))
    for _kind, _content in {
        "null": b"null",
        "a list": b"[]",
        "nothing": b"",
        "deep": b"[" * 10**5,
        "no UTF-8": b"\xff" * 9,
    }.items():
        PARTIALS[f"{_file} {_kind}"] = _written(_file, _content)
for _name, _value in (("version", 7), ("texts", []), ("calls", 10**9), ("model", "x" * 5000)):
    PARTIALS[f"root {_name}"] = _said(
        "zarr.json", lambda data, n=_name, v=_value: facts(data).update({n: v})
    )
CALL: tuple[tuple[str, Any], ...] = (
    ("heads", 1),
    ("keys", 2**20),
    ("scale", 2.0),
    ("pattern", {"kind": "x"}),
)
for _name, _value in CALL:
    PARTIALS[f"call {_name}"] = _said(
        "calls/0000/zarr.json", lambda data, n=_name, v=_value: facts(data).update({n: v})
    )
for _name, _value in (("shape", [2**40]), ("codecs", []), ("data_type", "object")):
    PARTIALS[f"query {_name}"] = _said("calls/0000/query/zarr.json", _update(**{_name: _value}))


def _vast(name: str) -> Partial:
    def make(left: Path) -> None:
        _removed(left / name)
        (left / name).touch()
        os.truncate(left / name, 2**40)

    return make


for _name in ("zarr.json", "calls/0000/zarr.json", "calls/0000/query/zarr.json"):
    PARTIALS[f"{_name} of 1 TB"] = _vast(_name)


# What is missing.

for _name in (
    "zarr.json",
    "calls",
    "calls/0001",
    "calls/0000/key",
    "calls/0000/key/c/0/0/0",
    "all",
):
    PARTIALS[f"no {_name}"] = lambda left, name=_name: _removed(left / name)
