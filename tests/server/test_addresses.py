"""The address of a file tells it from every other: answers are kept, and published, by it."""

from dataclasses import fields, is_dataclass
from itertools import product
from typing import Any

from regard.server import file_layout, live_files
from regard.server.tile_ids import LINES, POOLS, HeadName, LineSetName, TilesetName

HEADS = (HeadName(0, 1), HeadName(1, 0), HeadName(0, "mean"))
TILESETS = tuple(TilesetName(of, pool) for of in (None, *HEADS) for pool in POOLS)
LINESETS = tuple(LineSetName(of, line, pool) for of in HEADS for line in LINES for pool in POOLS)
VALUES: dict[str, tuple[Any, ...]] = {
    "direction": ("from", "at"),
    "line": LINESETS,
    "of": HEADS,
    # Whether it is published is said in the file, not by its address.
    "published": (None,),
    "queries": (range(1, 3), range(2, 3), range(1, 4)),
    "keys": (range(1, 3), range(2, 3), range(1, 4)),
    "tileset": TILESETS,
    "words": ("one", "two", "two&count=11", "three&from=1"),
}
"""Values that a field of a file may have, if it is no number."""


def kinds() -> list[Any]:
    """Return all kinds of files."""
    return [
        kind
        for module in (file_layout, live_files)
        for kind in vars(module).values()
        if is_dataclass(kind) and kind.__module__ == module.__name__
    ]


def test_files_that_differ_have_different_addresses() -> None:
    files = [
        kind(*values)
        for kind in kinds()
        for values in product(*(VALUES.get(field.name, (1, 11)) for field in fields(kind)))
    ]
    assert len({type(file) for file in files}) == 11
    found: dict[str, Any] = {}
    for file in files:
        other = found.setdefault(file.path, file)
        assert other is file, f"{other} and {file} are both at {file.path}"
