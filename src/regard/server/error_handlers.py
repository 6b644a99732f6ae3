"""Exceptions as responses: a status and {"error": "…"}."""

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from regard.printable import printable
from regard.recording import RecordingError
from regard.server.job_queue import Busy, Gone, Overdue

_CLIENT_LEFT = 499
"""The status that web servers log if the client has disconnected."""

_log = logging.getLogger("regard.server")


def fault(status: int, says: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return an error as a response."""
    return JSONResponse({"error": says}, status, {"Cache-Control": "no-store", **(headers or {})})


def asked_path(scope: Scope) -> str:
    """Return the path of a request without the secret, for logs."""
    return scope["path"].removeprefix(scope.get("root_path", ""))


def handle_faults(app: FastAPI) -> None:
    """Add exception handlers to an app."""

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        says = str(error.detail)
        if error.status_code == 404 and says == "Not Found":
            says = "there is no such address"
        return fault(error.status_code, says, dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def wrong_request(request: Request, error: RequestValidationError) -> Response:
        return fault(422, "; ".join(_wrong(one) for one in error.errors()[:5]))

    @app.exception_handler(IndexError)
    async def no_such_part(request: Request, error: IndexError) -> Response:
        return fault(404, str(error))

    @app.exception_handler(ValueError)
    async def wrong_value(request: Request, error: ValueError) -> Response:
        return fault(422, str(error))

    @app.exception_handler(RecordingError)
    async def damaged(request: Request, error: RecordingError) -> Response:
        _log.error("%r: %s", asked_path(request.scope), printable(str(error)))
        return fault(500, f"the recording is damaged: {error}")

    @app.exception_handler(Busy)
    async def busy(request: Request, error: Busy) -> Response:
        return fault(503, str(error), {"Retry-After": "1"})

    @app.exception_handler(Overdue)
    async def overdue(request: Request, error: Overdue) -> Response:
        return fault(504, str(error))

    @app.exception_handler(Gone)
    async def gone(request: Request, error: Gone) -> Response:
        return Response(status_code=_CLIENT_LEFT)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        return fault(500, f"{type(error).__name__}: {error}")


def _wrong(error: dict[str, object]) -> str:
    """Return the parameter and its error."""
    place = error.get("loc")
    name = ".".join(str(one) for one in place[1:]) if isinstance(place, tuple | list) else ""
    return f"{name}: {error.get('msg')}" if name else str(error.get("msg"))
