"""Who may ask: requests that name this machine, and, where it is open to others, know a secret."""

import logging
import secrets
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.server.error_handlers import fault

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

_ENTER = """<!doctype html>
<meta charset="utf-8"><meta http-equiv="refresh" content="0;url=./"><title>Regard</title>
<p><a href="./">Open the map</a></p>
"""
"""A page that goes on to the map.

A redirect would not do: after a click on a page elsewhere, browsers send a strict cookie only once
a page of the same site has asked.
"""

_log = logging.getLogger("regard.server")


class Guard:
    """Lets requests through that may ask, and puts security headers on every answer.

    A page on the web can make a browser ask for anything on this machine under a name of its own
    (DNS rebinding); so requests must name a host that is known. Where the server can be reached
    from elsewhere, a token must have come with the link once, and then comes as a cookie.

    Args:
        app: what answers.
        hosts: the host names that may be asked by, without ports; "*" for any.
        token: the secret, or None if whoever reaches the server may ask.

    Raises:
        ValueError: any host may be asked by, and there is no token.
    """

    def __init__(self, app: ASGIApp, *, hosts: tuple[str, ...], token: str | None) -> None:
        if ANY_HOST in hosts and token is None:
            raise ValueError("a server that answers to any host name needs a token")
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._token = token
        # A cookie is sent to all ports of a host: each server knows its own by name.
        self._cookie = f"regard_{sha256((token or '').encode()).hexdigest()[:8]}"

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
        try:
            await self._app(scope, receive, send_safely)
        except Exception as error:  # noqa: BLE001  (whatever it is, others are to be served)
            _log.exception("%s failed", scope["path"])
            if not started:
                answer = fault(500, f"{type(error).__name__}: {error}")
                await answer(scope, receive, send_safely)

    def _refused(self, scope: Scope) -> Response | None:
        """Return what is said instead of an answer; None if the request may have one."""
        headers = Headers(scope=scope)
        host = host_name(headers.get("host", ""))
        if ANY_HOST not in self._hosts and host not in self._hosts:
            return fault(
                400,
                f"this server does not answer to the name {host[:80]!r}: ask by "
                f"{', '.join(sorted(self._hosts))}",
            )
        if self._token is None or self._has_cookie(headers):
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and _same(given, self._token):
            return self._entry()
        return fault(
            403, "this map is open only by its whole link, with ?token=…, as its owner has it"
        )

    def _entry(self) -> Response:
        assert self._token is not None
        answer = HTMLResponse(_ENTER, headers={"Cache-Control": "no-store"})
        answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
        return answer

    def _has_cookie(self, headers: Headers) -> bool:
        assert self._token is not None
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return found is not None and _same(found.value, self._token)


def host_name(host: str) -> str:
    """Return the name in a Host header, without the port.

    >>> host_name("LOCALHOST:8080"), host_name("[::1]:8080"), host_name("[::1]")
    ('localhost', '[::1]', '[::1]')
    """
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()


def _same(given: str, secret: str) -> bool:
    """Compare in a time that says nothing of where they differ."""
    return secrets.compare_digest(given.encode(), secret.encode())
