"""Limits of connections: number, request time, size of what may be headers."""

import asyncio
import sys

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 10.0
"""Seconds for a request to arrive, and for the first of a connection to begin."""

_MOST_CONNECTIONS = 512
_SLICE = 4 * 2**10
"""So many bytes of headers more than their bound may arrive; `Guard` refuses them by their size."""


class Connection(H11Protocol):
    """A uvicorn connection that is closed if its request is slow.

    Refusals close connections, so an open one that was answered has shown the secret. All others
    are strangers. If there are too many connections, the oldest stranger is closed: strangers
    can't lock out others.
    """

    is_stranger = True
    since: float = 0.0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since = self.loop.time()
        self._expect_request()
        if len(self.connections) > most_connections():
            strangers: list[Connection] = [
                one for one in self.connections if isinstance(one, Connection) and one.is_stranger
            ]
            # Includes this connection.
            min(strangers, key=lambda one: one.since).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._has_request()

    def data_received(self, data: bytes) -> None:
        # h11 bounds only incomplete headers, so feed it parts that are smaller than the bound.
        start = 0
        while start < len(data) and not self.transport.is_closing():
            stop = start + _SLICE if self.conn.their_state is h11.IDLE else len(data)
            super().data_received(data[start:stop])
            start = stop
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._expect_request()
        else:
            self._has_request()

    def on_response_complete(self) -> None:
        if not self.transport.is_closing():
            self.is_stranger = False
        super().on_response_complete()

    def _expect_request(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _has_request(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def most_connections() -> int:
    """Return the maximum number of connections: at most half of the open-file limit."""
    if sys.platform == "win32":
        return _MOST_CONNECTIONS
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_CONNECTIONS if soft < 0 else min(_MOST_CONNECTIONS, soft // 2)
