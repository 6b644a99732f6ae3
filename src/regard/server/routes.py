"""The routes of the map."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from regard.recording.looks import Direction
from regard.server.assets import ASSETS
from regard.server.file_layout import (
    BINARY,
    JSON,
    InfoFile,
    LineFile,
    RowsFile,
    TextFile,
    ThumbsFile,
    TileFile,
)
from regard.server.info import recordings
from regard.server.live_files import (
    ColumnFile,
    EdgesFile,
    SearchFile,
    TokenLooksFile,
    WeightFile,
)
from regard.server.models import (
    Column,
    EdgeList,
    Fault,
    Info,
    Matches,
    Pieces,
    Recordings,
    RowBlock,
    TokenLooks,
    Weight,
)
from regard.server.service import Service, response, service_of
from regard.server.tile_ids import (
    ALL,
    DIGEST_PATTERN,
    HEAD_PATTERN,
    LINE_PATTERN,
    ROWS_PATTERN,
    TILESET_PATTERN,
    HeadName,
    LineSetName,
    TilesetName,
)

MOST_TOKENS = 2**31 - 1

Serving = Annotated[Service, Depends(service_of)]
Digest = Annotated[
    str, Path(pattern=DIGEST_PATTERN, description="The content address of a recording.")
]
Tileset = Annotated[
    str,
    Path(
        pattern=TILESET_PATTERN,
        description="c3-h5-mean: call 3, head 5 (or hmean), pooled by mean or max; all-mean.",
    ),
]
Line = Annotated[
    str,
    Path(
        pattern=LINE_PATTERN,
        description="c3-h5-received-mean: weight received by keys, or entropy of queries, pooled "
        "by mean or max.",
    ),
]
Head = Annotated[str, Path(pattern=HEAD_PATTERN, description="c3-h5: call 3, head 5, or c3-hmean.")]
Level = Annotated[
    int,
    Path(ge=0, le=31, description="The zoom level: 0 is one tile; at maxZoom a cell is one token."),
]
Place = Annotated[int, Path(ge=0, le=MOST_TOKENS)]
Text = Annotated[int, Path(ge=0, le=1, description="The number of a text.")]
Call = Annotated[int, Path(ge=0, le=999_999, description="The number of a call.")]

FAULTS: dict[int | str, dict[str, Any]] = {
    400: {"model": Fault, "description": "The host name is not allowed."},
    403: {"model": Fault, "description": "The secret is missing."},
    404: {"model": Fault, "description": "The recording has no such part."},
    413: {"model": Fault, "description": "The body is too long."},
    422: {"model": Fault, "description": "A parameter is wrong."},
    500: {"model": Fault, "description": "The recording is damaged."},
    503: {"model": Fault, "description": "The server is busy: retry in a second."},
    504: {"model": Fault, "description": "The computation timed out."},
}
SAME: dict[int | str, dict[str, Any]] = {304: {"description": "Not modified, by If-None-Match."}}


def _binary(about: str) -> dict[int | str, dict[str, Any]]:
    """Describe a binary response."""
    schema = {"type": "string", "format": "binary"}
    fault = {JSON: {"schema": {"$ref": "#/components/schemas/Fault"}}}
    faults = {
        status: {"description": one["description"], "content": fault}
        for status, one in FAULTS.items()
    }
    return {200: {"description": about, "content": {BINARY: {"schema": schema}}}, **SAME, **faults}


def _json(model: type) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": model}, **SAME}


class BinaryResponse(Response):
    """A binary response, for the OpenAPI schema."""

    media_type = BINARY


router = APIRouter(responses=FAULTS)
data = APIRouter(prefix="/data/{digest}", responses=FAULTS, tags=["data"])


def _page(name: str) -> Any:
    async def page(request: Request, serving: Serving) -> Response:
        return request.app.state.viewer[name].respond(request, private=serving.private)

    return page


for _address, _name in (("/", "index.html"), *((f"/{name}", name) for name in ASSETS)):
    router.add_api_route(_address, _page(_name), include_in_schema=False)


@router.get(
    "/recordings.json", summary="List the recordings", responses=_json(Recordings), tags=["data"]
)
async def recordings_json(request: Request, serving: Serving) -> Response:
    """List the recordings with their content addresses."""
    listed = list(serving.recordings.values())
    answer = await serving.listed(
        request, "recordings", lambda: recordings(listed, live=True).to_bytes()
    )
    return response(request, answer, "no-cache")


@data.get("/info.json", summary="Describe a recording", responses=_json(Info))
async def info_json(request: Request, serving: Serving, digest: Digest) -> Response:
    """Return the metadata of a recording for the viewer."""
    return await serving.respond(request, digest, InfoFile())


@data.get("/text/{text}.json", summary="Read a text", responses=_json(Pieces))
async def text_json(request: Request, serving: Serving, digest: Digest, text: Text) -> Response:
    """Return the text of each token; joined, they are the text."""
    return await serving.respond(request, digest, TextFile(text))


@data.get(
    "/tiles/{tileset}/{level}/{x}/{y}.bin",
    summary="Get a tile of a map",
    response_class=BinaryResponse,
    responses=_binary("gzip of 256 × 256 little-endian float32; rows are queries."),
)
async def tile_bin(
    request: Request,
    serving: Serving,
    digest: Digest,
    tileset: Tileset,
    level: Level,
    x: Place,
    y: Place,
) -> Response:
    """Return a tile: NaN where all pairs are masked, exact weights if a cell is one pair.

    Pooled values have 12 bits of mantissa, a relative error of at most 1.3e-4.
    """
    file = TileFile(TilesetName.parse(tileset), level, x, y)
    return await serving.respond(request, digest, file)


@data.get(
    "/lines/{line}/{level}/{x}.bin",
    summary="Get a tile of a line",
    response_class=BinaryResponse,
    responses=_binary("gzip of 256 little-endian float32."),
)
async def line_bin(
    request: Request, serving: Serving, digest: Digest, line: Line, level: Level, x: Place
) -> Response:
    """Return a part of a line along an axis of a map."""
    return await serving.respond(request, digest, LineFile(LineSetName.parse(line), level, x))


@data.get(
    "/thumbs/{call}.bin",
    summary="Get thumbnails of all heads of a call",
    response_class=BinaryResponse,
    responses=_binary("gzip of [heads, 32, 32] little-endian float32."),
)
async def thumbs_bin(request: Request, serving: Serving, digest: Digest, call: Call) -> Response:
    """Return the map of every head of a call, pooled to 32 × 32 by mean."""
    return await serving.respond(request, digest, ThumbsFile(call))


@data.get("/rows/{head}/{block}.json", summary="Get the strongest keys", responses=_json(RowBlock))
async def rows_json(
    request: Request,
    serving: Serving,
    digest: Digest,
    head: Annotated[
        str, Path(pattern=ROWS_PATTERN, description="c3-h5, c3-hmean, or all (the mean).")
    ],
    block: Place,
) -> Response:
    """Return the strongest keys of 16 queries, up to 64 each."""
    of = None if head == ALL else HeadName.parse(head)
    return await serving.respond(request, digest, RowsFile(of, block))


@data.get(
    "/columns/{head}/{key}.json", summary="Get the strongest queries", responses=_json(Column)
)
async def columns_json(
    request: Request, serving: Serving, digest: Digest, head: Head, key: Place
) -> Response:
    """Return the strongest queries of a key, up to 64."""
    return await serving.respond(request, digest, ColumnFile(HeadName.parse(head), key))


@data.get(
    "/looks/{direction}/{text}/{token}.json",
    summary="Get the strongest look of each head",
    responses=_json(TokenLooks),
)
async def looks_json(
    request: Request,
    serving: Serving,
    digest: Digest,
    direction: Annotated[Direction, Path(description="Looks from the token, or at it.")],
    text: Text,
    token: Place,
) -> Response:
    """Return the strongest look of each head from a token, or at it.

    Only looks between words count that are not neighbours, and none at the first token.
    """
    return await serving.respond(request, digest, TokenLooksFile(direction, text, token))


@data.get("/weight/{head}/{query}/{key}.json", summary="Get one weight", responses=_json(Weight))
async def weight_json(
    request: Request, serving: Serving, digest: Digest, head: Head, query: Place, key: Place
) -> Response:
    """Return the weight of a pair and its score before the softmax."""
    file = WeightFile(HeadName.parse(head), query, key)
    return await serving.respond(request, digest, file)


@data.get("/edges/{head}.json", summary="Find the strongest pairs", responses=_json(EdgeList))
async def edges_json(
    request: Request,
    serving: Serving,
    digest: Digest,
    head: Head,
    y0: Annotated[int, Query(ge=0, le=MOST_TOKENS, description="The first query.")],
    y1: Annotated[int, Query(ge=0, le=MOST_TOKENS, description="The query after the last.")],
    x0: Annotated[int, Query(ge=0, le=MOST_TOKENS, description="The first key.")],
    x1: Annotated[int, Query(ge=0, le=MOST_TOKENS, description="The key after the last.")],
    count: Annotated[int, Query(ge=1, le=4096)] = 256,
) -> Response:
    """Return the strongest pairs of a rectangle of at most 16 million pairs."""
    file = EdgesFile(HeadName.parse(head), range(y0, y1), range(x0, x1), count)
    return await serving.respond(request, digest, file)


@data.get("/search.json", summary="Search a text", responses=_json(Matches))
async def search_json(
    request: Request,
    serving: Serving,
    digest: Digest,
    words: Annotated[str, Query(alias="text", min_length=1, max_length=1000)],
    text: Annotated[int, Query(alias="T", ge=0, le=1, description="The number of a text.")] = 0,
    start: Annotated[int, Query(alias="from", ge=0, le=MOST_TOKENS, description="A token.")] = 0,
    count: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Return the matches of a search, ignoring case."""
    return await serving.respond(request, digest, SearchFile(words, text, start, count))
