"""Access control: requests need the secret and a known host name."""

import logging
import re
from collections.abc import Sequence
from hmac import compare_digest
from traceback import format_exc

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.printable import printable
from regard.server.error_handlers import asked_path, fault

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Loopback host names."""

ANY_HOST = "*"

_LOCAL_PAGES = " ".join(
    f"{scheme}://{name}:*" for scheme in ("http", "https") for name in ("localhost", "127.0.0.1")
)
SECURITY_HEADERS = {
    # The viewer loads nothing from elsewhere; it makes shaders and workers from blobs.
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "connect-src 'self'",
            "worker-src 'self' blob:",
            "base-uri 'none'",
            "form-action 'none'",
            # Notebooks show the map in a frame.
            f"frame-ancestors 'self' {_LOCAL_PAGES}",
        )
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

BODY_BYTES = 64 * 2**10
"""Maximum bytes of a request's body: the names of some tiles."""

HEADER_BYTES = 16 * 2**10
"""Maximum bytes of a request's headers."""

_TOKEN = re.compile(r"[\w.~-]+", re.ASCII)
_CLOSE = {"Connection": "close"}

_log = logging.getLogger("regard.server")


class Guard:
    """Refuses requests without access, and adds security headers to every response.

    The secret is the first part of every path: `/SECRET/recordings.json`. It is checked before
    anything else. URLs in the viewer are relative, so it need not know the secret, and it works in
    a frame, where browsers keep no cookie.

    Against DNS rebinding, by which a web page reaches this machine under its own host name,
    requests must also name a known host. A refused request closes its connection.

    Args:
        app: the wrapped app.
        hosts: allowed host names, without ports; "*" for any.
        token: the secret, or None for open access.

    Raises:
        ValueError: any host is allowed without a token, or the token can't be in a URL.
    """

    def __init__(self, app: ASGIApp, *, hosts: tuple[str, ...], token: str | None) -> None:
        if ANY_HOST in hosts and token is None:
            raise ValueError('hosts "*" needs a token, got None')
        if token is not None and not _TOKEN.fullmatch(token):
            raise ValueError("token must be one or more letters, digits or -._~")
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._root = "" if token is None else f"/{token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_safely(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message).update(SECURITY_HEADERS)
            await send(message)

        refused = self._refused(scope)
        if refused is not None:
            await refused(scope, receive, send_safely)
            return
        scope["root_path"] = self._root
        try:
            await self._app(scope, _bounded(receive), send_safely)
        except Exception as error:  # noqa: BLE001  (the server must go on)
            _log.error("%r failed: %s", asked_path(scope), printable(format_exc()))
            if not started:
                answer = fault(500, f"{type(error).__name__}: {error}")
                await answer(scope, receive, send_safely)

    def _refused(self, scope: Scope) -> Response | None:
        """Return the error response; None if the request is allowed."""
        root = f"{self._root}/".encode()
        if not compare_digest(scope["path"].encode("utf-8", "replace")[: len(root)], root):
            says = "the secret is missing or wrong: open the whole link that `regard map` printed"
            return fault(403, says, _CLOSE)
        host = host_name(Headers(scope=scope).get("host", ""))
        if ANY_HOST not in self._hosts and host not in self._hosts:
            return fault(
                400,
                f"the host must be one of {', '.join(sorted(self._hosts))}, got {host[:80]!r}",
                _CLOSE,
            )
        return _refused_headers(scope["headers"])


def _refused_headers(headers: Sequence[tuple[bytes, bytes]]) -> Response | None:
    """Return the error response to headers that are too long, or that name two ends of the body."""
    # As sent: a colon, a space and the end of the line.
    size = sum(len(name) + len(value) + 4 for name, value in headers)
    if size > HEADER_BYTES:
        says = f"the headers must have at most {HEADER_BYTES:,} bytes, got {size:,}"
        return fault(431, says, _CLOSE)
    names = {name.lower() for name, _ in headers}
    if names >= {b"content-length", b"transfer-encoding"}:
        # A proxy may believe the other one, and take a part of the body for a request.
        says = "the headers must have Content-Length or Transfer-Encoding, got both"
        return fault(400, says, _CLOSE)
    return None


def _bounded(receive: Receive) -> Receive:
    """Limit the body of a request to `BODY_BYTES`."""
    size = 0

    async def receive_some() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > BODY_BYTES:
            says = f"the body must have at most {BODY_BYTES:,} bytes"
            raise HTTPException(413, says, _CLOSE)
        return message

    return receive_some


def host_name(host: str) -> str:
    """Return the name in a Host header, without the port.

    >>> host_name("LOCALHOST:8080"), host_name("[::1]:8080"), host_name("[::1]")
    ('localhost', '[::1]', '[::1]')
    """
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()
