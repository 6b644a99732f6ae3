"""The files of the map: paths and contents.

The server computes them on request, and `publish` writes them. All paths are below `data/DIGEST/`;
`docs/guides/map.md` has the whole layout.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from regard.recording import Recording
from regard.recording.all_heads import Steps, finished
from regard.server.info import ROW_BLOCK, info
from regard.server.models import Media, Pieces, Published, Row, RowBlock
from regard.server.packing import packed, shortest
from regard.server.tile_ids import HeadName, LineSetName, TilesetName, name_of

THUMB_SIZE = 32
NUM_ROW_KEYS = 64
"""Maximum listed keys of a row."""

JSON: Media = "application/json"
BINARY: Media = "application/octet-stream"


@runtime_checkable
class File(Protocol):
    """A file of the map.

    Attributes:
        media_type: its media type.
    """

    media_type: ClassVar[Media]

    @property
    def path(self) -> str:
        """The path below that of its recording."""
        ...

    def body(self, recording: Recording) -> bytes:
        """Compute the bytes.

        Raises:
            IndexError: the recording has no such part.
            ValueError: the parameters are invalid.
            RecordingError: the recording is damaged.
        """
        ...


@runtime_checkable
class FileInSteps(File, Protocol):
    """A file that may take seconds, computed in steps."""

    def steps(self, recording: Recording) -> Steps[bytes]:
        """Compute the bytes; yields after each call or head if it is of all heads."""
        ...


@dataclass(frozen=True)
class InfoFile:
    """The metadata for the viewer."""

    media_type: ClassVar[Media] = JSON
    published: Published | None = None

    @property
    def path(self) -> str:
        return "info.json"

    def body(self, recording: Recording) -> bytes:
        """Return an `Info`."""
        return info(recording, self.published).to_bytes()


@dataclass(frozen=True)
class TextFile:
    """The tokens of a text."""

    media_type: ClassVar[Media] = JSON
    text: int

    @property
    def path(self) -> str:
        return f"text/{self.text}.json"

    def body(self, recording: Recording) -> bytes:
        """Return `Pieces`."""
        if self.text >= len(recording.texts):
            raise IndexError(f"text must be below {len(recording.texts)}, got {self.text}")
        return Pieces(pieces=list(recording.texts[self.text].pieces)).to_bytes()


@dataclass(frozen=True)
class TileFile:
    """256 × 256 cells of a map, [queries, keys]."""

    media_type: ClassVar[Media] = BINARY
    tileset: TilesetName
    level: int
    x: int
    y: int

    @property
    def path(self) -> str:
        return f"tiles/{self.tileset}/{self.level}/{self.x}/{self.y}.bin"

    def body(self, recording: Recording) -> bytes:
        """Return packed float32 [256, 256]; exact if a cell is one pair."""
        return finished(self.steps(recording))

    def steps(self, recording: Recording) -> Steps[bytes]:
        """Compute the same."""
        of, pool = self.tileset.of, self.tileset.pool
        place = self.level, self.x, self.y
        if of is None:
            cells = yield from recording.tile_of_all(*place, pool)
            deepest = recording.full_zoom
        else:
            cells = recording.tile(of.call, of.head, *place, pool)
            deepest = recording.max_zoom(of.call)
        return packed(cells, exact=self.level == deepest)


@dataclass(frozen=True)
class LineFile:
    """256 cells of a line along an axis."""

    media_type: ClassVar[Media] = BINARY
    line: LineSetName
    level: int
    x: int

    @property
    def path(self) -> str:
        return f"lines/{self.line}/{self.level}/{self.x}.bin"

    def body(self, recording: Recording) -> bytes:
        """Return packed float32 [256]; exact if a cell is one token."""
        of, name, pool = self.line.of, self.line.line, self.line.pool
        cells = recording.line(of.call, of.head, name, self.level, self.x, pool)
        return packed(cells, exact=self.level == recording.max_zoom(of.call))


@dataclass(frozen=True)
class ThumbsFile:
    """A thumbnail of each head of a call."""

    media_type: ClassVar[Media] = BINARY
    call: int

    @property
    def path(self) -> str:
        return f"thumbs/{self.call}.bin"

    def body(self, recording: Recording) -> bytes:
        """Return packed float32 [heads, 32, 32]; smaller ones are padded with NaN."""
        found = recording.thumbs(self.call)
        heads, height, width = found.shape
        thumbs = np.full((heads, THUMB_SIZE, THUMB_SIZE), np.nan, np.float32)
        thumbs[:, :height, :width] = found
        return packed(thumbs, exact=False)


@dataclass(frozen=True)
class RowsFile:
    """The strongest keys of a block of queries, in a head or in the mean over all heads."""

    media_type: ClassVar[Media] = JSON
    of: HeadName | None
    block: int

    @property
    def path(self) -> str:
        return f"rows/{name_of(self.of)}/{self.block}.json"

    def body(self, recording: Recording) -> bytes:
        """Return `RowBlock`."""
        return finished(self.steps(recording))

    def steps(self, recording: Recording) -> Steps[bytes]:
        """Compute the same."""
        call = recording.arrays_of(0 if self.of is None else self.of.call).facts
        first = self.block * ROW_BLOCK
        if first >= call.queries:
            raise IndexError(
                f"call {call.index} has {-(-call.queries // ROW_BLOCK)} blocks of rows, got number "
                f"{self.block}"
            )
        queries = range(first, min(first + ROW_BLOCK, call.queries))
        count = min(NUM_ROW_KEYS, call.keys)
        if self.of is None:
            found = yield from recording.top_keys_of_all(queries, count)
        else:
            found = recording.top_keys(self.of.call, self.of.head, queries, count)
        rows = [
            # Masked keys have weight 0.
            Row(keys=keys[weights > 0].tolist(), weights=shortest(weights[weights > 0]), rest=rest)
            for keys, weights, rest in zip(*found, strict=True)
        ]
        return RowBlock(first=first, rows=rows).to_bytes()
