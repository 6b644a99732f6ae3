"""Maps and lines as HiGlass tilesets: names, sizes, zoom levels."""

import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.recording import Recording
from regard.server.file_layout import File, LineFile, TileFile
from regard.server.info import TILE_SIZE, heads_of, title_of
from regard.server.packing import unpacked
from regard.server.tile_ids import (
    LINE_PATTERN,
    LINES,
    POOLS,
    LineSetName,
    TilesetName,
)

_PLACE = re.compile("0|[1-9][0-9]{0,9}")


@dataclass(frozen=True)
class Tileset:
    """A map or a line of a recording.

    Attributes:
        recording: its recording.
        name: its name in URLs.
    """

    recording: Recording
    name: TilesetName | LineSetName

    @property
    def uid(self) -> str:
        """The id for clients, without a dot, which separates tile numbers."""
        return f"{self.recording.digest}_{self.name}"

    @property
    def datatype(self) -> str:
        """HiGlass' datatype."""
        return "matrix" if isinstance(self.name, TilesetName) else "vector"

    @property
    def title(self) -> str:
        """The display name."""
        of, name = self.name.of, self.name
        head = "all heads" if of is None else title_of(self.recording, of)
        line = f" {name.line}" if isinstance(name, LineSetName) else ""
        return f"{self.recording.name} {head}{line} ({name.pool})"

    def listed(self) -> dict[str, str]:
        """Return a list entry."""
        return {
            "uuid": self.uid,
            "name": self.title,
            "datatype": self.datatype,
            "filetype": "regard",
            "coordSystem": "tokens",
        }

    def described(self) -> dict[str, Any]:
        """Return its sizes.

        Raises:
            IndexError: the recording has no such head.
        """
        recording, of = self.recording, self.name.of
        if of is None:
            call = recording.arrays_of(0).facts
            max_zoom, full_zoom = recording.max_zoom("all"), recording.full_zoom
        else:
            call = recording.arrays_of(of.call).facts
            max_zoom = full_zoom = call.max_zoom
            if of.head != "mean" and of.head >= call.heads:
                raise IndexError(
                    f"head must be below {call.heads} for call {call.index}, got {of.head}"
                )
        ends = [call.keys, call.queries]
        if isinstance(self.name, LineSetName):
            ends = ends[:1] if self.name.line == "received" else ends[1:]
        return {
            "name": self.title,
            "datatype": self.datatype,
            "min_pos": [0] * len(ends),
            "max_pos": ends,
            "max_width": TILE_SIZE * 2**full_zoom,
            "max_zoom": max_zoom,
            "tile_size": TILE_SIZE,
            "bins_per_dimension": TILE_SIZE,
            "mirror_tiles": "false",
            "coordSystem": "tokens",
        }

    def file(self, places: Sequence[str]) -> File:
        """Return the file of a tile, by its level and its index along each axis.

        Raises:
            ValueError: the numbers are invalid.
        """
        axes = 2 if isinstance(self.name, TilesetName) else 1
        if len(places) != 1 + axes or not all(_PLACE.fullmatch(place) for place in places):
            wanted = "UID.z.x.y" if axes == 2 else "UID.z.x"
            raise ValueError(f"a tile of {self.uid} must be named {wanted}")
        level, x, *y = map(int, places)
        if isinstance(self.name, TilesetName):
            return TileFile(self.name, level, x, y[0])
        return LineFile(self.name, level, x)


def tileset_of(recording: Recording, name: str) -> Tileset:
    """Return a tileset by its name in URLs.

    Raises:
        ValueError: the name is invalid.
    """
    kind = LineSetName if re.fullmatch(LINE_PATTERN, name) else TilesetName
    return Tileset(recording, kind.parse(name))


def tilesets_of(recording: Recording) -> Iterator[Tileset]:
    """Yield all maps and lines of a recording."""
    heads = list(heads_of(recording))
    of = [None, *heads] if recording.has_all else heads
    for one in of:
        for pool in POOLS:
            yield Tileset(recording, TilesetName(one, pool))
    for one in heads:
        for line in LINES:
            for pool in POOLS:
                yield Tileset(recording, LineSetName(one, line, pool))


def tile_of(body: bytes) -> dict[str, Any]:
    """Return a tile in HiGlass' format."""
    values = unpacked(body)
    finite = values[np.isfinite(values)]
    return {
        "dense": b64encode(values.tobytes()).decode(),
        "dtype": "float32",
        "size": TILE_SIZE,
        "min_value": float(finite.min()) if len(finite) else 0.0,
        "max_value": float(finite.max()) if len(finite) else 0.0,
    }
