"""The map in a notebook: a server in this process, and a frame."""

import secrets
import threading
from dataclasses import dataclass, field

from regard.recording import Recording
from regard.server.app import app
from regard.server.serve import Server, link, listening

_HOST = "127.0.0.1"
_PATIENCE = 30.0
"""Timeout for the start of the server, in seconds."""

_HEIGHT = 720


@dataclass
class _Running:
    """A server and its thread."""

    server: Server
    thread: threading.Thread
    address: str


@dataclass
class _Here:
    """The server of this process, if there is one."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    running: _Running | None = None


_here = _Here()


@dataclass(frozen=True)
class Map:
    """A served map; a notebook displays it in a frame.

    Attributes:
        url: its URL, with a secret, for a browser on this machine.
    """

    url: str

    def stop(self) -> None:
        """Stop the server, which serves all maps of this process."""
        _stop()

    def _repr_html_(self) -> str:
        return (
            f'<iframe src="{self.url}" width="100%" height="{_HEIGHT}" style="border:0" '
            'allowfullscreen title="Regard: map of attention"></iframe>'
        )

    def __str__(self) -> str:
        return self.url


def map(recording: Recording) -> Map:
    """Serve the map of a recording, and show it in a notebook.

    The first call starts a server in this process; further recordings are added to it.

    Args:
        recording: the recording.

    Returns:
        An object with `url` and `stop()`, which a notebook displays.
    """
    with _here.lock:
        running = _here.running
        if running is None or not running.thread.is_alive():
            running = _here.running = _started(recording)
        else:
            running.server.service.add(recording)
    return Map(f"{running.address}#recording={recording.digest}")


def _started(recording: Recording) -> _Running:
    token = secrets.token_urlsafe()
    served = app([recording], token=token)
    listener = listening(_HOST, 0)
    ready = threading.Event()
    server = Server(served, ready.set)
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name="regard-map", daemon=True
    )
    thread.start()
    if not ready.wait(_PATIENCE):
        raise TimeoutError(f"the server did not start within {_PATIENCE:.0f} s")
    return _Running(server, thread, link(_HOST, listener.getsockname()[1], token))


def _stop() -> None:
    with _here.lock:
        running, _here.running = _here.running, None
    if running is not None:
        running.server.should_exit = True
        running.thread.join(_PATIENCE)
