"""Who may ask: requests that know the secret, and name this machine."""

import logging
import re
from hmac import compare_digest
from traceback import format_exc

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.printable import printable
from regard.server.error_handlers import asked_path, fault

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""The names of this machine that only it understands."""

ANY_HOST = "*"

_LOCAL_PAGES = " ".join(
    f"{scheme}://{name}:*" for scheme in ("http", "https") for name in ("localhost", "127.0.0.1")
)
SECURITY_HEADERS = {
    # The viewer is all here. Its shaders and workers are made by itself, out of blobs.
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
"""The body of a request may have so many bytes: the names of some tiles."""

_TOKEN = re.compile(r"[\w.~-]+", re.ASCII)
_CLOSE = {"Connection": "close"}

_log = logging.getLogger("regard.server")


class Guard:
    """Lets requests through that may ask, and puts security headers on every answer.

    The secret is the first part of every address: `/SECRET/recordings.json`. It is compared before
    anything else of a request is looked at. Addresses in the viewer are relative, so it need not
    know, and it works in a frame, where browsers keep no cookie.

    A page on the web can make a browser ask for anything on this machine under a name of its own
    (DNS rebinding); so requests must name a host that is known, too. A request that is refused ends
    its connection.

    Args:
        app: what answers.
        hosts: the host names that may be asked by, without ports; "*" for any.
        token: the secret, or None if whoever reaches the server may ask.

    Raises:
        ValueError: any host may be asked by, and there is no token; or it can't be in an address.
    """

    def __init__(self, app: ASGIApp, *, hosts: tuple[str, ...], token: str | None) -> None:
        if ANY_HOST in hosts and token is None:
            raise ValueError("a server that answers to any host name needs a token")
        if token is not None and not _TOKEN.fullmatch(token):
            raise ValueError("token must be letters, digits and -._~, and at least one")
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._root = "" if token is None else f"/{token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or say why not."""
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
        except Exception as error:  # noqa: BLE001  (whatever it is, others are to be served)
            _log.error("%r failed: %s", asked_path(scope), printable(format_exc()))
            if not started:
                answer = fault(500, f"{type(error).__name__}: {error}")
                await answer(scope, receive, send_safely)

    def _refused(self, scope: Scope) -> Response | None:
        """Return what is said instead of an answer; None if the request may have one."""
        root = f"{self._root}/".encode()
        if not compare_digest(scope["path"].encode("utf-8", "replace")[: len(root)], root):
            says = "this map is open only by its whole link, with the secret, as its owner has it"
            return fault(403, says, _CLOSE)
        host = host_name(Headers(scope=scope).get("host", ""))
        if ANY_HOST not in self._hosts and host not in self._hosts:
            return fault(
                400,
                f"this server does not answer to the name {host[:80]!r}: ask by "
                f"{', '.join(sorted(self._hosts))}",
                _CLOSE,
            )
        return None


def _bounded(receive: Receive) -> Receive:
    """Return what receives a request, up to a number of bytes."""
    size = 0

    async def receive_some() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > BODY_BYTES:
            says = f"the body of a request has at most {BODY_BYTES:,} bytes"
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
