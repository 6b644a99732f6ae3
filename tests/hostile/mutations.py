"""Some hundred ways to change a recording, by name: each changes a copy in place."""

import json
import os
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numcodecs.blosc
import numpy as np
from numpy.typing import NDArray

from regard.recording.arrays import ArraySpec
from regard.recording.files import SUMS
from tests.hostile.seal import replace, seal

Mutation = Callable[[Path], None]
MUTATIONS: dict[str, Mutation] = {}
KINDS: dict[str, int] = {}
"""The kind of each mutation: the line of this file that adds it."""
SECRET = b"the content of a file that is none of the recording's"

ARRAYS = (
    "texts/0/tokens",
    "texts/0/token_stops",
    "texts/0/text",
    "texts/0/offsets",
    "calls/0000/query",
    "calls/0000/key",
    "calls/0000/lse",
    "calls/0000/entropy",
    "calls/0000/received",
    "calls/0000/thumbs",
    "calls/0000/mean/2",
    "calls/0000/gradient",
    "calls/0000/totals",
    "calls/0000/effect/2",
    "calls/0000/part_2",
    "calls/0000/part_6",
    "calls/0000/positions",
    "calls/0001/weights",
    "all/max/2",
)
"""One of every kind."""


def add(name: str, change: Mutation, *, sealed: bool = True) -> None:
    """Add a mutation, after which all sums are right if it is sealed."""

    def mutate(path: Path) -> None:
        change(path)
        if sealed:
            seal(path)

    name = name if sealed else f"{name}, unsealed"
    assert name not in MUTATIONS, name
    MUTATIONS[name] = mutate
    KINDS[name] = sys._getframe(1).f_lineno


def described(edit: Callable[[dict[str, Any]], object]) -> Mutation:
    """Change the description."""

    def change(path: Path) -> None:
        data = json.loads((path / "zarr.json").read_bytes())
        edit(data)
        replace(path / "zarr.json", json.dumps(data).encode())

    return change


def facts(data: dict[str, Any], call: int | None = None) -> dict[str, Any]:
    if call is None:
        return data["attributes"]["regard"]
    return declared(data)[f"calls/{call:04d}"]["attributes"]["regard"]


def declared(data: dict[str, Any]) -> dict[str, Any]:
    return data["consolidated_metadata"]["metadata"]


def chunks(path: Path, array: str) -> list[Path]:
    return sorted(file for file in (path / array / "c").rglob("*") if file.is_file())


def encoded(values: NDArray[Any]) -> bytes:
    """Return a chunk as Regard writes it."""
    codec = (b"zstd", 1, numcodecs.blosc.BITSHUFFLE)
    return checked(numcodecs.blosc.compress(np.ascontiguousarray(values), *codec))


def checked(body: bytes) -> bytes:
    return body + google_crc32c.value(body).to_bytes(4, "little")


# What the recording and its calls say of themselves.

WRONG: tuple[Any, ...] = (None, -1, 2**70, "x" * 5000, [[[]]], {"x": 0}, 0.5, True, 10**6)
ROOT_FIELDS = "format version complete title model date versions dtype error texts sections calls"
CALL = """index module looks layer group heads key_heads queries keys key_dim stored dtype scale
first_position query_text key_text pattern bias sinks cells thumb measures error sha256"""


def _set(name: str, value: Any, call: int | None = None) -> Mutation:
    return described(lambda data: facts(data, call).update({name: value}))


for _place, _name in enumerate([*ROOT_FIELDS.split(), "all_cells"]):
    for _value in (WRONG[_place % 3 :: 3], WRONG[(_place + 1) % 3 :: 3])[_place % 2]:
        add(f"root {_name} {str(_value)[:20]}", _set(_name, _value))
for _place, _name in enumerate(CALL.split()):
    for _value in WRONG[_place % 3 :: 3]:
        add(f"call {_name} {str(_value)[:20]}", _set(_name, _value, _place % 2))
for _name, _value in (("title", "Other"), ("error", 0.5), ("digest", "0" * 16), ("digest", "")):
    add(
        f"root {_name} {_value[:5] if isinstance(_value, str) else _value}",
        _set(_name, _value),
        sealed=False,
    )
add("call scale 2", _set("scale", 2.0, 0), sealed=False)
add("call cells 0", _set("cells", [0], 0))
add("no cells", _set("cells", [], 0))
add("all cells 0", _set("all_cells", [0]))
add("an unknown name", _set("more", 1))
add("a section outside", _set("sections", [{"text": 1, "token": 0, "title": ""}]))
add("a title of control characters", _set("title", "\x1b[31m\x00"))
add("many sections", _set("sections", [{"text": 0, "token": 1, "title": "t" * 200}] * 9999))


# Sizes that agree with one another, and with nothing that is there.


def _sized(**sizes: int) -> Mutation:
    """Declare other sizes everywhere."""

    def edit(data: dict[str, Any]) -> None:
        now = facts(data, 0)
        other = {now[name]: size for name, size in sizes.items()}
        for text in facts(data)["texts"]:
            text["tokens"] = other.get(text["tokens"], text["tokens"])
        for number in range(facts(data)["calls"]):
            facts(data, number).update(sizes)
        for one in declared(data).values():
            if "shape" in one:
                one["shape"] = [other.get(size, size) for size in one["shape"]]

    return described(edit)


for _size in (301, 2**16, 2**21, 2**22, 4 * 10**8):
    add(f"{_size} tokens", _sized(queries=_size, keys=_size))
for _size in (1, 3, 2**12, 2**16, 10**6):
    add(f"{_size} heads", _sized(heads=_size))
for _size in (9, 2**15, 2**24):
    add(f"{_size} numbers a head", _sized(key_dim=_size))


def _million_heads(data: dict[str, Any]) -> None:
    _sized(heads=10**6)
    for number in range(facts(data)["calls"]):
        facts(data, number).update(heads=10**6, measures={}, sinks=None)


add("a million heads without measures", described(_million_heads))
for _count in (1, 3, 9999, 10**6):
    add(f"{_count} calls", _set("calls", _count))


# The file of the description.


def _written(content: bytes | Callable[[bytes], bytes]) -> Mutation:
    def change(path: Path) -> None:
        file = path / "zarr.json"
        replace(file, content(file.read_bytes()) if callable(content) else content)

    return change


for _name, _content in {
    "null": b"null",
    "a list": b"[]",
    "a string": b'"regard"',
    "nothing": b"",
    "an empty object": b"{}",
    "zeros": bytes(5000),
    "deep": b"[" * 10**6,
    "deep objects": b'{"a":' * 10**5,
    "large": b" " * 2**25,
    "many lists": b"[" + b"[]," * (2**24 // 3 - 1) + b"0]",
    "cut off": lambda data: data[: len(data) // 2],
    "cut off late": lambda data: data[:-2],
    "named twice": lambda data: b'{"attributes": {},' + data.lstrip()[1:],
    "a number NaN": lambda data: data.replace(b'"scale": 0.35', b'"scale": NaN, "x": 0.35', 1),
    "UTF-16": lambda data: data.decode().encode("utf-16"),
    "latin": lambda data: data.replace(b"regard", b"\xff\xfe", 1),
}.items():
    add(f"description {_name}", _written(_content), sealed=False)
add("Zarr 2", described(lambda data: data.update(zarr_format=2)))
add("no list of arrays", described(lambda data: data.pop("consolidated_metadata")), sealed=False)
add("no arrays", described(lambda data: declared(data).clear()))
add("no attributes", described(lambda data: data["attributes"].clear()), sealed=False)
add("a call of no attributes", described(lambda data: declared(data)["calls/0001"].clear()))
add("deep metadata", described(lambda data: declared(data).update(x=_deep(300))))


def _deep(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"x": found}
    return found


# What is declared of arrays.

GZIP = {"name": "gzip", "configuration": {"level": 9}}
SHARDS = {
    "name": "sharding_indexed",
    "configuration": {"chunk_shape": [1], "codecs": [GZIP], "index_codecs": [GZIP]},
}
V2 = {
    "zarr_format": 2,
    "shape": [1],
    "chunks": [1],
    "dtype": "|O",
    "order": "C",
    "fill_value": None,
    "compressor": None,
    "filters": [{"id": "pickle", "protocol": 5}],
}
METADATA: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gzip", {"codecs": [{"name": "bytes"}, GZIP]}),
    ("nested gzip", {"codecs": [{"name": "bytes"}, *[GZIP] * 6]}),
    ("shards", {"codecs": [SHARDS]}),
    ("no codecs", {"codecs": []}),
    ("pickles", {"codecs": [{"name": "numcodecs.pickle", "configuration": {}}]}),
    ("objects", {"data_type": "object"}),
    ("strings", {"data_type": "string"}),
    ("another type", {"data_type": "int16"}),
    ("huge", {"shape": [2**40]}),
    ("negative", {"shape": [-1, 3]}),
    ("no sizes", {"shape": None}),
    ("one chunk", {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2**31]}}}),
    ("another key", {"chunk_key_encoding": {"name": "v2", "configuration": {"separator": "."}}}),
    ("filled", {"fill_value": 1}),
    ("transformed", {"storage_transformers": [{"name": "x"}]}),
    ("a group", {"node_type": "group"}),
    ("more", {"must_understand": {"x": 1}}),
)


def _declare(array: str, change: dict[str, Any]) -> Mutation:
    return described(lambda data: declared(data)[array].update(change))


for _place, _array in enumerate(ARRAYS):
    for _name, _change in METADATA[_place % 6 :: 6]:
        add(f"{_array} {_name}", _declare(_array, _change))
    add(f"{_array} of Zarr 2", described(lambda d, a=_array: declared(d).update({a: V2})))
# Of arrays whose sizes are known from themselves alone, at least in part.
FREE = ("texts/0/tokens", "texts/0/text", *(f"calls/0000/part_{n}" for n in (2, 3, 4, 6, 7, 8)))
SHAPES: tuple[Any, ...] = (
    [2**29, 0],
    [2**40, 0],
    [0, 2**40],
    [2**24, 0],
    [0],
    [0, 0],
    [],
    [1] * 70,
    [300, 0],
    [2, 0],
    [8, 0],
    [1, 300, 0],
    [0, 300],
    [300, 1],
    [1, 300],
    [300, 300, 1],
    [2**14, 2**14],
    [2**27, 2],
    [2**63],
    [-1, -(2**63)],
    [True],
    [300.0],
    [None],
    [[300]],
    ["300"],
    "300",
    {"0": 300},
)


def _shaped(array: str, shape: Any) -> Mutation:
    """Declare another shape, in chunks as Regard would write it, with chunks of zeros."""

    def change(path: Path) -> None:
        sizes = isinstance(shape, list) and all(type(n) is int and 0 <= n < 2**31 for n in shape)
        if not sizes or not 0 < len(shape) < 9 or not all(shape):
            ends = [max(1, size) for size in shape] if sizes else [1]
            grid = {"name": "regular", "configuration": {"chunk_shape": ends}}
            _declare(array, {"shape": shape, "chunk_grid": grid})(path)
            return
        data = json.loads((path / "zarr.json").read_bytes())
        spec = ArraySpec.of(shape, declared(data)[array]["data_type"])
        _declare(array, spec.metadata())(path)
        chunk = encoded(np.zeros(spec.chunks, spec.dtype))
        shutil.rmtree(path / array / "c")
        for number in range(spec.grid[0]):
            file = path / "/".join([array, "c", str(number), *["0"] * (len(shape) - 1)])
            file.parent.mkdir(parents=True)
            file.write_bytes(chunk)

    return change


for _place, _shape in enumerate(SHAPES):
    for _array in FREE[_place % 3 :: 3]:
        add(f"{_array} of shape {str(_shape)[:20]}", _shaped(_array, _shape))
for _array, _shape in (
    ("texts/0/tokens", [2**29, 0]),
    ("calls/0000/part_7", [300, 0]),
    ("calls/0000/part_2", [2, 0]),
    ("calls/0000/part_8", [134 * 10**6, 2]),
):
    add(f"{_array} of {_shape}", _shaped(_array, _shape))
add("a mask of 60,000²", _declare("calls/0000/part_6", {"shape": [60000, 60000]}))
add("a mask of 300 × 2⁴⁰", _declare("calls/0000/part_6", {"shape": [2**40, 300]}))


# Chunks.


def _missing(path: Path, array: str) -> None:
    chunks(path, array)[0].unlink()


def _cut(path: Path, array: str) -> None:
    file = chunks(path, array)[0]
    replace(file, file.read_bytes()[:-9])


def _flipped(path: Path, array: str) -> None:
    file = chunks(path, array)[0]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    replace(file, data)


def _garbled(path: Path, array: str) -> None:
    """Change compressed numbers, and make the checksum right."""
    file = chunks(path, array)[0]
    data = bytearray(file.read_bytes()[:-4])
    data[20:] = bytes(255 - byte for byte in data[20:])
    replace(file, checked(bytes(data)))


def _bomb(path: Path, array: str) -> None:
    """Say that a chunk holds 2 GB."""
    file = chunks(path, array)[0]
    data = bytearray(file.read_bytes()[:-4])
    data[4:8] = (2**31 - 1).to_bytes(4, "little")
    replace(file, checked(bytes(data)))


def _long(path: Path, array: str) -> None:
    """Say that a chunk takes more than it does."""
    file = chunks(path, array)[0]
    data = bytearray(file.read_bytes()[:-4])
    data[12:16] = (2**30).to_bytes(4, "little")
    replace(file, checked(bytes(data)))


def _other_codec(path: Path, array: str) -> None:
    file = chunks(path, array)[0]
    holds = numcodecs.blosc.decompress(file.read_bytes()[:-4])
    replace(file, checked(numcodecs.blosc.compress(holds, b"lz4", 1, 0)))


def _empty(path: Path, array: str) -> None:
    replace(chunks(path, array)[0], b"")


def _vast(path: Path, array: str) -> None:
    """Make a file of 1 TB, of which nothing takes room."""
    file = chunks(path, array)[0]
    replace(file, b"")
    os.truncate(file, 2**40)


def _folder(path: Path, array: str) -> None:
    file = chunks(path, array)[0]
    file.unlink()
    file.mkdir()


DAMAGE = (_missing, _cut, _flipped, _garbled, _bomb, _long, _other_codec, _empty, _folder)
for _place, _array in enumerate(ARRAYS):
    for _damage in DAMAGE[_place % 4 :: 4]:
        add(f"{_array}{_damage.__name__}", lambda path, d=_damage, a=_array: d(path, a))
    for _damage in DAMAGE[_place % 9 :: 9]:
        change: Mutation = lambda path, d=_damage, a=_array: d(path, a)  # noqa: E731
        add(f"{_array}{_damage.__name__}", change, sealed=False)
    if _place % 4 == 0:
        add(f"{_array}_vast", lambda path, a=_array: _vast(path, a), sealed=False)


def _swapped(path: Path, one: str, other: str) -> None:
    first, second = path / one, path / other
    held = first.read_bytes()
    replace(first, second.read_bytes())
    replace(second, held)


for _one, _other in (
    ("calls/0000/query/c/0/0/0", "calls/0000/query/c/1/0/0"),
    ("calls/0000/mean/2/c/0/0/0", "calls/0000/mean/2/c/1/0/0"),
    ("calls/0000/lse/c/0/0", "calls/0000/lse/c/1/0"),
    ("calls/0000/query/c/0/0/0", "calls/0000/key/c/0/0/0"),
    ("calls/0000/mean/2/c/0/0/0", "calls/0000/max/2/c/0/0/0"),
    ("calls/0000/entropy/c/0/0", "calls/0000/received/c/0/0"),
    ("calls/0001/weights/c/0/0/0", "calls/0001/weights/c/0/0/1"),
):
    for _sealed in (False, True):
        _change = lambda path, one=_one, other=_other: _swapped(path, one, other)  # noqa: E731
        add(f"{_one} swapped with {_other}", _change, sealed=_sealed)


# Content that is no content of such an array.


def _content(array: str, make: Callable[[NDArray[Any]], NDArray[Any]]) -> Mutation:
    """Write other numbers into the first chunk of an array."""

    def change(path: Path) -> None:
        data = json.loads((path / "zarr.json").read_bytes())
        kind = declared(data)[array]["data_type"]
        file = chunks(path, array)[0]
        values = np.frombuffer(numcodecs.blosc.decompress(file.read_bytes()[:-4]), kind)
        replace(file, encoded(make(values.copy()).astype(kind)))

    return change


BACKWARDS: Callable[[NDArray[Any]], NDArray[Any]] = lambda values: values[::-1]  # noqa: E731
for _array in (
    "texts/0/token_stops",
    "texts/0/offsets",
    "calls/0000/positions",
    "calls/0000/part_7",
):
    add(f"{_array} backwards", _content(_array, BACKWARDS))
    for _value in (-1, 2**62, -(2**63), 10**6):
        add(f"{_array} all {_value}", _content(_array, lambda x, v=_value: np.full_like(x, v)))
for _array in ("calls/0000/lse", "calls/0000/part_2", "calls/0000/part_3", "calls/0001/weights"):
    for _value in (np.nan, np.inf, 1e38):
        add(f"{_array} all {_value}", _content(_array, lambda x, v=_value: np.full_like(x, v)))
add("edges outside", _content("calls/0000/part_8", lambda x: np.full_like(x, 10**9)))
add("no UTF-8", _content("texts/0/text", lambda x: np.full_like(x, 0xFF)))


# Patterns and biases.

CAUSAL = {"kind": "causal"}
GIVEN = {"kind": "given", "mask": "part_6"}


def _tree(depth: int, leaf: Any) -> Any:
    for _ in range(depth):
        leaf = {"kind": "or", "first": leaf, "second": leaf}
    return leaf


def _chain(length: int) -> Any:
    found: Any = CAUSAL
    for _ in range(length):
        found = {"kind": "not", "pattern": found}
    return found


PATTERNS: dict[str, Any] = {
    "of 2¹² members": _tree(12, CAUSAL),
    "of 64 masks": _tree(5, GIVEN),
    "of 60 negations": _chain(60),
    "of 900 negations": _chain(900),
    "empty": {},
    "moon": {"kind": "moon"},
    "a kind of no kind": {"kind": []},
    "no member": {"kind": "and", "first": CAUSAL},
    "a member that is none": {"kind": "not", "pattern": 3},
    "a path": {"kind": "given", "mask": "../../secret"},
    "an absolute path": {"kind": "given", "mask": "/etc/passwd"},
    "queries": {"kind": "given", "mask": "query"},
    "ids of a mask": {"kind": "documents", "ids": "part_6"},
    "edges of a mask": {"kind": "neighbours", "edges": "part_6"},
    "a part that is not there": {"kind": "given", "mask": "part_99"},
    "a number": {"kind": "given", "mask": 3},
    **{
        f"{kind} {name} {value}": {"kind": kind, "before": 0, "after": 0, "start": 0, name: value}
        for kind, name in (
            ("window", "before"),
            ("window", "after"),
            ("strided", "stride"),
            ("columns", "every"),
            ("prefix", "length"),
            ("padding", "stop"),
        )
        for value in (-1, 2**40, 2**70, None)
    },
    **{
        f"global at {str(value)[:20]}": {"kind": "global_at", "positions": value}
        for value in ([], [-1], [5, 3], [2**40], [2**70], None, "abc", [0.5], [299, 300])
    },
    "global at many": {"kind": "global_at", "positions": list(range(0, 10**6, 2))},
}
BIASES: dict[str, Any] = {
    "moon": {"kind": "moon"},
    "slopes of a mask": {"kind": "alibi", "slopes": "part_6"},
    "a path": {"kind": "alibi", "slopes": "../x"},
    "joined too often": _tree(9, {"kind": "softcap", "cap": 1.0}),
    **{f"softcap {v}": {"kind": "softcap", "cap": v} for v in (0, -1, 1e-300, "inf", None)},
    **{
        f"relative {v}": {
            "kind": "relative",
            "table": "part_3",
            "max_distance": v,
            "bidirectional": 0,
        }
        for v in (0, -1, 2**70, None)
    },
    "given slopes": {"kind": "given", "values": "part_2", "first_query": 0},
}
for _name, _value in PATTERNS.items():
    add(f"pattern {_name}", _set("pattern", _value, 0))
for _name, _value in BIASES.items():
    add(f"bias {_name}", _set("bias", _value, 0))
add("first position far away", _set("first_position", 2**31, 0))
add("first position before all", _set("first_position", -(2**31), 1))


# Files that are none of the recording's.


def _outside(path: Path, content: bytes = b"") -> Path:
    """Return a file beside the recording."""
    found = path.parent / "secret"
    found.write_bytes(content or SECRET)
    return found


def _linked(name: str) -> Mutation:
    """Move a file or folder out of the recording, and leave a link to it."""

    def change(path: Path) -> None:
        outside = path.parent / "moved"
        (path / name).rename(outside)
        (path / name).symlink_to(outside)

    return change


def _piped(name: str) -> Mutation:
    def change(path: Path) -> None:
        (path / name).unlink()
        os.mkfifo(path / name)

    return change


def _device(name: str, device: str) -> Mutation:
    def change(path: Path) -> None:
        (path / name).unlink()
        (path / name).symlink_to(device)

    return change


def _socket(name: str) -> Mutation:
    def change(path: Path) -> None:
        (path / name).unlink()
        here = os.getcwd()
        os.chdir((path / name).parent)
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(Path(name).name)
        os.chdir(here)

    return change


FILES = (
    "zarr.json",
    SUMS,
    f"calls/0000/query/{SUMS}",
    "calls/0000/query/c/0/0/0",
    "texts/0/text/c/0",
    "calls/0000/mean/2/c/0/0/0",
)
for _name in FILES:
    add(f"{_name} linked", _linked(_name), sealed=False)
    add(f"{_name} piped", _piped(_name), sealed=False)
    add(f"{_name} of /dev/zero", _device(_name, "/dev/zero"), sealed=False)
    add(f"{_name} a socket", _socket(_name), sealed=False)
for _name in ("calls", "calls/0000", "calls/0000/query", "calls/0000/query/c/1", "texts", "all"):
    add(f"folder {_name} linked", _linked(_name), sealed=False)


def _foreign_text(path: Path) -> None:
    """Link the text to a chunk elsewhere that has all marks of one of ours."""
    file = path / "texts/0/text/c/0"
    size = len(numcodecs.blosc.decompress(file.read_bytes()[:-4]))
    foreign = np.frombuffer(SECRET.ljust(size), np.uint8)
    file.unlink()
    file.symlink_to(_outside(path, encoded(foreign)))


add("the text is a link to a chunk elsewhere", _foreign_text)
add("the text is a link to a chunk elsewhere", _foreign_text, sealed=False)


# Sums.


def _edited(name: str, edit: Callable[[str], str]) -> Mutation:
    def change(path: Path) -> None:
        replace(path / name, edit((path / name).read_text()).encode())

    return change


for _name in (SUMS, f"calls/0000/query/{SUMS}"):
    for _what, _edit in {
        "empty": lambda text: "",
        "twice": lambda text: text + text,
        "short": lambda text: "".join(text.splitlines(keepends=True)[1:]),
        "wrong": lambda text: text.replace("a", "b"),
        "no sums": lambda text: text.replace(" ", "-"),
        "another": lambda text: text + f"{'0' * 64}  ../secret\n",
        "binary": lambda text: text + "\0\0\0",
    }.items():
        add(f"{_name} {_what}", _edited(_name, _edit), sealed=False)
    add(f"{_name} removed", lambda path, n=_name: (path / n).unlink(), sealed=False)
