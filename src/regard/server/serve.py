"""Run the server until Ctrl-C."""

import errno
import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType

import uvicorn
from fastapi import FastAPI

from regard.recording import Recording
from regard.server.access import ANY_HOST, HEADER_BYTES, LOOPBACK
from regard.server.app import app
from regard.server.connection import Connection
from regard.server.job_queue import STOPPING
from regard.server.service import Service

FIRST_PORT = 8080
_TRIED_PORTS = 20
_PATIENCE = 3
"""Seconds for open requests when the server stops."""

_END = _PATIENCE + STOPPING + 1
"""Seconds until a stopping server is killed."""

_IDLE = 75
"""Seconds until idle connections are closed."""

_EVERYWHERE = ("0.0.0.0", "::")
_HERE = ("localhost", "127.0.0.1", "::1")


class Server(uvicorn.Server):
    """A server with a callback when it is ready, which stops its job queue on exit.

    Args:
        served: the app.
        ready: called when the server accepts requests.
    """

    def __init__(self, served: FastAPI, ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                served,
                http=Connection,
                ws="none",
                h11_max_incomplete_event_size=HEADER_BYTES,
                # Otherwise each malformed request prints a warning.
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_PATIENCE,
                timeout_keep_alive=_IDLE,
            )
        )
        self.service: Service = served.state.service
        self._ready = ready

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        # In case of a blocked read.
        end = threading.Timer(_END, os._exit, (128 + sig,))
        end.daemon = True
        end.start()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.work.close()
        await super().shutdown(sockets)


def serve(
    recordings: Sequence[Recording],
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    ready: Callable[[str], None] = print,
) -> None:
    """Serve the map of recordings until Ctrl-C.

    Args:
        recordings: the recordings.
        host: the address to listen on; other than a loopback address, it is open to the network.
        port: the port; by default the first free one from 8080 on.
        ready: called with the link when the server accepts requests. The link has a secret, which
            all requests need.

    Raises:
        OSError: the address or port is not available.
    """
    here = host in _HERE
    token = secrets.token_urlsafe()
    hosts = LOOPBACK if here else (ANY_HOST,) if host in _EVERYWHERE else (*LOOPBACK, _name(host))
    served = app(recordings, token=token, hosts=hosts)
    with listening(host, port) as listener:
        where = link(host, listener.getsockname()[1], token)
        server = Server(served, lambda: ready(where))
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listener])


def listening(host: str, port: int | None) -> socket.socket:
    """Return a socket at an address and port, by default the first free one.

    Raises:
        OSError: there is none.
    """
    ports = [port] if port is not None else [*range(FIRST_PORT, FIRST_PORT + _TRIED_PORTS), 0]
    for one in ports:
        try:
            return _bound(host, one)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise OSError(f"can't listen on {host}, port {one}: {error}") from error
    raise OSError(f"port {port} is in use: choose another with --port, or leave it out")


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    found = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            # A port in TIME_WAIT can be reused at once.
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except OSError:
        found.close()
        raise
    return found


def link(host: str, port: int, token: str | None = None) -> str:
    """Return the URL to open.

    >>> link("127.0.0.1", 8080), link("::1", 80, "abc")
    ('http://127.0.0.1:8080/', 'http://[::1]:80/abc/')
    """
    name = socket.gethostname() if host in _EVERYWHERE else _name(host)
    return f"http://{name}:{port}/" + (f"{token}/" if token else "")


def _name(host: str) -> str:
    """Return an address as in a URL."""
    return f"[{host}]" if ":" in host else host
