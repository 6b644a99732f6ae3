"""The server of the map, as an ASGI app."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI

from regard import __version__
from regard.recording import Recording
from regard.server.access import LOOPBACK, Guard
from regard.server.assets import assets, packed_assets
from regard.server.cache import DEFAULT_BYTES
from regard.server.error_handlers import handle_faults
from regard.server.higlass import router as higlass
from regard.server.job_queue import MOST_WAITING, NUM_THREADS, STOPPING
from regard.server.routes import data, router
from regard.server.service import Service
from regard.server.viewer import viewer_of

_ABOUT = """Tiles of attention maps, computed on request. Files below `data/DIGEST/` are immutable
and may be cached; `/api/v1/` has the same tiles in the HiGlass protocol. Errors are
`{"error": "…"}`."""


def app(
    recordings: Sequence[Recording],
    *,
    token: str | None = None,
    hosts: tuple[str, ...] = LOOPBACK,
    static: Mapping[str, bytes] | None = None,
    cache_bytes: int = DEFAULT_BYTES,
    threads: int = NUM_THREADS,
    limit: int = MOST_WAITING,
) -> FastAPI:
    """Return an app that serves the map of recordings.

    Args:
        recordings: the recordings, in listed order.
        token: a required secret, the first part of every path.
        hosts: allowed host names, without ports; "*" for any, which needs a token.
        static: the files of the viewer, by name; by default those of the package.
        cache_bytes: size of the cache.
        threads: number of concurrent computations.
        limit: maximum number of waiting computations.

    Returns:
        An app with a `Service` as `state.service`.
    """
    service = Service(
        recordings, private=token is not None, cache_bytes=cache_bytes, threads=threads, limit=limit
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        yield
        service.work.close()
        await service.work.finished(STOPPING)

    found = FastAPI(
        title="Regard",
        version=__version__,
        description=_ABOUT,
        # Its pages load scripts from other hosts; /openapi.json remains.
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    found.state.service = service
    found.state.viewer = (
        viewer_of(assets(), packed_assets()) if static is None else viewer_of(static, {})
    )
    found.include_router(router)
    found.include_router(data)
    found.include_router(higlass)
    handle_faults(found)
    found.add_middleware(Guard, hosts=hosts, token=token)
    return found
