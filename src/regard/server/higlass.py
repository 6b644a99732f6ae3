"""The tile protocol of HiGlass, for other clients: the same tiles, as JSON."""

import asyncio
import json
from collections.abc import Sequence
from itertools import zip_longest
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from regard.recording import RecordingError
from regard.server.cache import Answer
from regard.server.file_layout import JSON
from regard.server.routes import FAULTS, Serving
from regard.server.service import Service
from regard.server.tilesets import Tileset, tile_of, tileset_of, tilesets_of

MOST_TILES = 64
"""Maximum tiles of a request."""

_CACHING = {"Cache-Control": "no-store"}

router = APIRouter(prefix="/api/v1", responses=FAULTS, tags=["higlass"])


class WantedTiles(BaseModel):
    """Tiles of one tileset, as HiGlass posts them."""

    model_config = ConfigDict(populate_by_name=True)

    tileset: str = Field(alias="tilesetUid", max_length=100)
    tiles: list[str] = Field(alias="tileIds", max_length=MOST_TILES)


class TilesetList(BaseModel):
    """Some of the tilesets.

    Attributes:
        count: total number of tilesets.
        results: the requested ones.
    """

    count: int
    results: list[dict[str, str]]


class Described(BaseModel):
    """A tileset in HiGlass' format, or an error; lists have an entry per axis."""

    model_config = ConfigDict(extra="forbid")

    name: str | None = None
    datatype: str | None = None
    min_pos: list[int] | None = None
    max_pos: list[int] | None = None
    max_width: int | None = None
    max_zoom: int | None = None
    tile_size: int | None = None
    bins_per_dimension: int | None = None
    mirror_tiles: str | None = None
    coordSystem: str | None = None
    error: str | None = None


class HiGlassTile(BaseModel):
    """A tile in HiGlass' format, or an error."""

    model_config = ConfigDict(extra="forbid")

    dense: str | None = Field(default=None, description="base64 of little-endian float32.")
    dtype: str | None = None
    size: int | None = Field(default=None, description="Numbers along an axis.")
    min_value: float | None = None
    max_value: float | None = None
    error: str | None = None


Ids = Annotated[list[str], Query(alias="d", min_length=1, max_length=MOST_TILES)]
Session = Annotated[str | None, Query(alias="s", max_length=100, description="Not used.")]


@router.get("/tilesets/", summary="List the tilesets", responses={200: {"model": TilesetList}})
async def tilesets(
    request: Request,
    serving: Serving,
    search: Annotated[str, Query(alias="ac", max_length=100, description="In the name.")] = "",
    kind: Annotated[
        str, Query(alias="dt", pattern="^(matrix|vector)?$", description="All if empty.")
    ] = "",
    offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """List the tilesets: a map and lines of each head."""
    recordings = list(serving.recordings.values())

    def body() -> bytes:
        found = [
            tileset
            for recording in recordings
            for tileset in tilesets_of(recording)
            if search.lower() in tileset.title.lower() and kind in ("", tileset.datatype)
        ]
        some = [tileset.listed() for tileset in found[offset : offset + limit]]
        return _json({"count": len(found), "results": some})

    return _answer(await serving.listed(request, ("tilesets", search, kind, offset, limit), body))


@router.get(
    "/tileset_info/",
    summary="Describe tilesets",
    responses={200: {"model": dict[str, Described]}},
)
async def tileset_info(
    request: Request, serving: Serving, uids: Ids, session: Session = None
) -> Response:
    """Return sizes and zoom levels of tilesets; an error for unknown ones."""

    def body() -> bytes:
        return _json({uid: _described(serving, uid) for uid in uids})

    return _answer(await serving.listed(request, ("tileset_info", *uids), body))


@router.get("/tiles/", summary="Get tiles", responses={200: {"model": dict[str, HiGlassTile]}})
async def tiles(request: Request, serving: Serving, ids: Ids, session: Session = None) -> Response:
    """Return tiles DIGEST_TILESET.z.x.y or DIGEST_LINE.z.x; an error for unknown ones."""
    return await _tiles(request, serving, ids)


@router.post(
    "/tiles/",
    summary="Get tiles that are named in the body",
    responses={200: {"model": dict[str, HiGlassTile]}},
)
async def posted_tiles(
    request: Request,
    serving: Serving,
    wanted: Annotated[list[WantedTiles], Field(max_length=MOST_TILES)],
    ids: Annotated[list[str] | None, Query(alias="d", max_length=MOST_TILES)] = None,
    session: Session = None,
) -> Response:
    """Return the tiles that the query names, or else those of the body."""
    named = ids or [f"{one.tileset}.{tile}" for one in wanted for tile in one.tiles]
    return await _tiles(request, serving, named)


def _described(serving: Service, uid: str) -> dict[str, Any]:
    try:
        return _tileset(serving, uid).described()
    except (HTTPException, IndexError, ValueError) as error:
        return {"error": _said(error)}


def _tileset(serving: Service, uid: str) -> Tileset:
    digest, _, name = uid.partition("_")
    return tileset_of(serving.recording(digest), name)


async def _tiles(request: Request, serving: Service, ids: Sequence[str]) -> Response:
    unique = list(dict.fromkeys(ids))
    found = await asyncio.gather(*(_tile(request, serving, name) for name in unique[:MOST_TILES]))
    too_many = f"a request must have at most {MOST_TILES} tiles, got {len(unique)}"
    named = dict(zip_longest(unique, found, fillvalue=too_many))
    # In a thread: encoding some megabytes would block the event loop.
    body = await asyncio.to_thread(_encoded, named)
    return Response(body, media_type=JSON, headers=_CACHING)


async def _tile(request: Request, serving: Service, name: str) -> Answer | str:
    """Return a tile, or an error message."""
    uid, *places = name.split(".")
    try:
        tileset = _tileset(serving, uid)
        return await serving.answer(request, tileset.recording.digest, tileset.file(places))
    except (HTTPException, IndexError, RecordingError, ValueError) as error:
        return _said(error)


def _encoded(found: dict[str, Answer | str]) -> bytes:
    tiles = {
        name: {"error": one} if isinstance(one, str) else tile_of(one.body)
        for name, one in found.items()
    }
    return _json(tiles)


def _said(error: Exception) -> str:
    return str(error.detail) if isinstance(error, HTTPException) else str(error)


def _answer(found: Answer) -> Response:
    return Response(found.body, media_type=JSON, headers=_CACHING)


def _json(data: Any) -> bytes:
    return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()
