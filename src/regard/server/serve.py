"""Run the server: for a person at a terminal, until Ctrl-C."""

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
from regard.server.access import ANY_HOST, LOOPBACK
from regard.server.app import app
from regard.server.connection import HEADER_BYTES, Connection
from regard.server.job_queue import STOPPING
from regard.server.service import Service

FIRST_PORT = 8080
_TRIED_PORTS = 20
_PATIENCE = 3
"""Requests that are being answered when the server stops have so many seconds."""

_END = _PATIENCE + STOPPING + 1
"""A server that was told to stop ends after so many seconds, whatever it does."""

_IDLE = 75
"""Connections over which nothing is asked for so many seconds are closed: sooner, a viewer might be
about to ask once more."""

_EVERYWHERE = ("0.0.0.0", "::")
_HERE = ("localhost", "127.0.0.1", "::1")


class Server(uvicorn.Server):
    """A server that says when it is ready, and computes nothing more when it stops.

    Args:
        served: the app.
        ready: called when requests are answered.
    """

    def __init__(self, served: FastAPI, ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                served,
                http=Connection,
                ws="none",
                h11_max_incomplete_event_size=HEADER_BYTES,
                # Of each malformed request it would say so, to whoever looks at the terminal.
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
        # Something may be in its way, such as a file that never answers.
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
        recordings: what to serve.
        host: the address to listen at. Any but that of this machine itself makes the map open to
            other machines.
        port: the port; by default 8080 or the next that is free.
        ready: called with the link when it can be opened. A secret is part of it, without which
            nothing is answered: others who use this machine have none.

    Raises:
        OSError: the address or port can't be had.
    """
    here = host in _HERE
    token = secrets.token_urlsafe()
    hosts = LOOPBACK if here else (ANY_HOST,) if host in _EVERYWHERE else (*LOOPBACK, _name(host))
    served = app(recordings, token=token, hosts=hosts)
    with listening(host, port) as listener:
        where = link(host, listener.getsockname()[1], token)
        server = Server(served, lambda: ready(where))
        # That is how one stops it.
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listener])


def listening(host: str, port: int | None) -> socket.socket:
    """Return a socket at an address, at the port or by default the first that is free.

    Raises:
        OSError: there is none.
    """
    ports = [port] if port is not None else [*range(FIRST_PORT, FIRST_PORT + _TRIED_PORTS), 0]
    for one in ports:
        try:
            return _bound(host, one)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise OSError(f"can't listen at {host}, port {one}: {error}") from error
    raise OSError(f"port {port} is taken: choose another with --port, or leave it out")


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    found = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            # A port that was just left can be had again; one that is in use can't.
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except OSError:
        found.close()
        raise
    return found


def link(host: str, port: int, token: str | None = None) -> str:
    """Return the address to open.

    >>> link("127.0.0.1", 8080), link("::1", 80, "abc")
    ('http://127.0.0.1:8080/', 'http://[::1]:80/abc/')
    """
    name = socket.gethostname() if host in _EVERYWHERE else _name(host)
    return f"http://{name}:{port}/" + (f"{token}/" if token else "")


def _name(host: str) -> str:
    """Return an address as it is in a link."""
    return f"[{host}]" if ":" in host else host
