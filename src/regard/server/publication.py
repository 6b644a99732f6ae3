"""A publication: heads, depth and files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regard.recording import Recording
from regard.recording.schema import CallFacts
from regard.server.file_layout import (
    File,
    InfoFile,
    LineFile,
    RowsFile,
    TextFile,
    ThumbsFile,
    TileFile,
)
from regard.server.info import ROW_BLOCK, TILE_SIZE, heads_of, info, title_of
from regard.server.models import CallInfo, Info, Published
from regard.server.tile_ids import (
    ALL,
    CELLS,
    LINES,
    POOLS,
    CellName,
    HeadName,
    HeadNumber,
    LineSetName,
    TilesetName,
)

MEAN = "mean"


@dataclass(frozen=True)
class Publication:
    """Some heads of a recording, down to some level of the map.

    Attributes:
        recording: the recording.
        heads: the heads; None is the mean over all of them.
        depth: the deepest level; at level `max_zoom` of a call, a cell is one pair.
        pools: poolings, "mean" and "max".
    """

    recording: Recording
    heads: tuple[HeadName | None, ...]
    depth: int
    pools: tuple[CellName, ...] = POOLS

    @property
    def info(self) -> Info:
        """The metadata for the viewer."""
        return info(self.recording, self.published)

    @property
    def published(self) -> Published:
        """The published part, for the viewer."""
        heads = [
            (ALL, MEAN) if one is None else (str(one.call), str(one.head)) for one in self.heads
        ]
        return Published(heads=heads, max_zoom=self.depth, pools=list(self.pools))

    def files(self) -> Iterator[File]:
        """Yield all files of the recording."""
        yield InfoFile(self.published)
        yield from files_of(self.info)


def planned(
    recording: Recording,
    *,
    heads: Sequence[str] = (ALL,),
    depth: int | None = None,
    pools: Sequence[str] = POOLS,
) -> Publication:
    """Return a publication.

    Args:
        recording: the recording.
        heads: names such as "18.6" or "18.mean", after the stack if a model has several
            ("encoder 3.1"); "mean" for the mean over all heads; "all" for all of these.
        depth: the deepest zoom level; by default the deepest stored one.
        pools: what cells show: "mean" and "max" of weights, and "effect" in addition.

    Raises:
        ValueError: there is no such head, level or pool.
    """
    deepest = recording.full_zoom
    if depth is None:
        depth = max((_stored_depth(call.facts) for call in recording.stored), default=0)
    if not 0 <= depth <= deepest:
        raise ValueError(f"depth must be from 0 to {deepest}, got {depth}")
    known = CELLS if recording.has_effects else POOLS
    chosen: tuple[CellName, ...] = tuple(pool for pool in known if pool in pools)
    if not chosen or len(chosen) < len(set(pools)):
        raise ValueError(f"pools must be {' or '.join(known)}, got {', '.join(pools) or 'none'}")
    if "effect" in chosen and "max" not in chosen:
        raise ValueError(f"pools must have max if they have effect, got {', '.join(pools)}")
    found = dict.fromkeys(one for name in heads for one in _heads_called(recording, name))
    if not found:
        raise ValueError("heads must not be empty: choose some, as 18.6, or all")
    return Publication(recording, tuple(found), depth, chosen)


def files_of(told: Info) -> Iterator[File]:
    """Yield every file that the viewer of a publication may request."""
    assert told.published is not None
    for number in range(len(told.texts)):
        yield TextFile(number)
    for call in told.calls:
        yield ThumbsFile(call.call)
    for call, head in told.published.heads:
        if call == ALL:
            yield from head_files(told, None)
            continue
        number: HeadNumber = "mean" if head == MEAN else int(head)
        yield from head_files(told, HeadName(int(call), number))


def head_files(told: Info, of: HeadName | None) -> Iterator[File]:
    """Yield the files of one head, or of the mean over all, which has no lines."""
    assert told.published is not None
    if of is None:
        is_causal = all(call.causal for call in told.calls)
        call = told.calls[0].model_copy(update={"causal": is_causal})
    else:
        call = told.calls[of.call]
        yield from _lines(told.published, of, call)
    yield from _tiles(told.published, of, call)
    for block in range(_parts(call.queries, ROW_BLOCK)):
        yield RowsFile(of, block)


def _levels(published: Published, call: CallInfo) -> range:
    return range(min(call.max_zoom, published.max_zoom) + 1)


def _lines(published: Published, of: HeadName, call: CallInfo) -> Iterator[File]:
    for level in _levels(published, call):
        cell = 2 ** (call.max_zoom - level)
        for line in LINES:
            size = call.keys if line == "received" else call.queries
            for x in range(_parts(size, TILE_SIZE * cell)):
                for pool in POOLS:
                    if pool in published.pools:
                        yield LineFile(LineSetName(of, line, pool), level, x)


def _tiles(published: Published, of: HeadName | None, call: CallInfo) -> Iterator[File]:
    for level in _levels(published, call):
        size = TILE_SIZE * 2 ** (call.max_zoom - level)
        for y in range(_parts(call.queries, size)):
            # Causal maps are empty where all keys come after all queries.
            columns = _parts(call.keys, size)
            for x in range(min(columns, y + 1) if call.causal else columns):
                for pool in published.pools:
                    yield TileFile(TilesetName(of, pool), level, x, y)


def _parts(size: int, part: int) -> int:
    return -(-size // part)


def _stored_depth(facts: CallFacts) -> int:
    """Return the deepest stored level of a call's map."""
    finest = facts.cells[0] if facts.cells else 1
    return facts.max_zoom - (finest.bit_length() - 1)


def _heads_called(recording: Recording, name: str) -> list[HeadName | None]:
    """Return the heads of a name: one, their mean, or all."""
    mean: dict[str, HeadName | None] = {MEAN: None} if recording.has_all else {}
    titled = {title_of(recording, head): head for head in heads_of(recording)} | mean
    if name == ALL:
        return list(titled.values())
    wanted = " ".join(name.split())
    if wanted in titled:
        return [titled[wanted]]
    alike = [title for title in titled if title.endswith(f" {wanted}")]
    if len(alike) == 1:
        return [titled[alike[0]]]
    if alike:
        raise ValueError(f"heads: {wanted} is ambiguous: use {', '.join(alike)}")
    numbered = [title for title in titled if not title.endswith(MEAN)]
    raise ValueError(
        f"heads must be LAYER.HEAD, from {numbered[0]} to {numbered[-1]}, "
        f"{', '.join(['LAYER.mean', *mean])}, or all, got {wanted!r}"
    )
