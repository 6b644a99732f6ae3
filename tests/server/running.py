"""A real server on a port of its own, for as long as a test takes, and what it can be asked."""

import asyncio
import gzip
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
from fastapi import FastAPI
from numpy.typing import NDArray

from regard.recording import Recording
from regard.server.app import app
from regard.server.cache import Answer
from regard.server.job_queue import JobQueue
from regard.server.serve import Server, link, listening
from regard.server.service import Service

PATIENCE = 120.0
"""Seconds after which something never comes, however busy the machine is."""

VIEWER = {
    "index.html": b"<!doctype html><title>map</title>",
    "map.js": b"1;",
    "map.css": b"p{}",
    "engine.js": b"2;",
}


@dataclass(frozen=True)
class Running:
    """A server that runs.

    Attributes:
        url: its address, with the secret if there is one, without a slash at the end.
        client: a client that asks it.
        served: the app.
        loop: the event loop that it runs in.
    """

    url: str
    client: httpx.Client
    served: FastAPI
    loop: asyncio.AbstractEventLoop

    @property
    def service(self) -> Service:
        return self.served.state.service

    @property
    def work(self) -> JobQueue:
        return self.service.work

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.client.get(path, **options)

    def numbers(self, path: str) -> NDArray[np.float32]:
        """Ask for packed numbers."""
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert "Content-Encoding" not in answer.headers
        return np.frombuffer(gzip.decompress(answer.content), "<f4")

    def tile(self, digest: str, tileset: str, level: int, x: int, y: int) -> NDArray[np.float32]:
        found = self.numbers(f"/data/{digest}/tiles/{tileset}/{level}/{x}/{y}.bin")
        return found.reshape(256, 256)

    @contextmanager
    def busy(self) -> Generator[None]:
        """Keep a thread of the server at work, on something that never ends by itself."""
        release, begun = threading.Event(), threading.Event()

        def compute() -> Answer:
            begun.set()
            release.wait()
            return Answer.of(b"", "application/json")

        async def never() -> None:
            await asyncio.Event().wait()

        waiting = asyncio.run_coroutine_threadsafe(
            self.work.result(object(), compute, never), self.loop
        )
        assert begun.wait(PATIENCE)
        try:
            yield
        finally:
            release.set()
            waiting.result(PATIENCE)


@contextmanager
def served(*recordings: Recording, **options: Any) -> Generator[Running]:
    """Serve recordings at a free port of this machine; options as for `regard.server.app`."""
    options = {"static": VIEWER, **options}
    made = app(recordings, **options)
    ready = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    def is_ready() -> None:
        loops.append(asyncio.get_running_loop())
        ready.set()

    listener = listening("127.0.0.1", 0)
    server = Server(made, is_ready)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        url = link("127.0.0.1", listener.getsockname()[1], options.get("token")).rstrip("/")
        with httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False) as client:
            yield Running(url, client, made, loops[0])
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()
