"""Everything that is done with a recording, as steps whose answers can be compared."""

import asyncio
import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from regard.recording import Recording, RecordingError
from regard.recording import open as open_recording
from regard.server.app import app
from regard.server.publish import publish

Look = Callable[[], bytes]
"""Something that is looked at: the answer, or a RecordingError."""


def looks(path: Path, folder: Path) -> Iterator[tuple[str, Look]]:
    """Yield what is looked at, one after the other; the first opens the recording."""
    opened: list[Recording] = []

    def opening() -> bytes:
        opened.append(open_recording(path))
        return opened[0].about.model_dump_json().encode()

    yield "open", opening
    if not opened:
        return
    recording = opened[0]
    for call in range(len(recording)):
        heads = recording.arrays_of(call).facts.heads
        deepest = recording.max_zoom(call)
        for head, level in {(0, 0), (heads - 1, deepest), ("mean", 0)}:
            yield f"tile {call}.{head} {level}", _tile(recording, call, head, level)
    yield "search", lambda: str(recording.search("word7", 0)).encode()
    yield "tokens", lambda: "".join(recording.tokens).encode()
    served = app([recording], static={})
    for address in _addresses(recording):
        yield address.replace(recording.digest, "DIGEST"), _asking(served, address)
    served.state.service.work.close()
    yield "publish", lambda: _published(recording, folder)


def _tile(recording: Recording, call: int, head: Any, level: int) -> Look:
    def look() -> bytes:
        lines = [recording.line(call, head, "received", level, 0).tobytes()]
        lines += [recording.line(call, head, "entropy", level, 0, "max").tobytes()]
        if recording[call].has_effects:
            lines += [recording.tile(call, head, level, 0, 0, "effect").tobytes()]
        return b"".join([*lines, recording.tile(call, head, level, 0, 0).tobytes()])

    return look


def _addresses(recording: Recording) -> Iterator[str]:
    """Yield some of what the map asks for."""
    below = f"/data/{recording.digest}"
    yield "/recordings.json"
    yield f"{below}/info.json"
    yield from (f"{below}/text/{number}.json" for number in range(len(recording.texts)))
    for call in range(len(recording)):
        yield f"{below}/thumbs/{call}.bin"
        yield f"{below}/rows/c{call}-h0/0.json"
        yield f"{below}/columns/c{call}-hmean/0.json"
        yield f"{below}/weight/c{call}-h0/0/0.json"
        yield f"{below}/tiles/c{call}-h0-max/0/0/0.bin"
    if recording.has_all:
        yield f"{below}/tiles/all-mean/0/0/0.bin"
        yield f"{below}/rows/all/0.json"
    yield f"{below}/edges/c0-h0.json?y0=0&y1=1&x0=0&x1=1"
    yield f"{below}/looks/from/{len(recording.texts) - 1}/0.json"
    yield f"{below}/looks/at/0/0.json"
    yield f"{below}/search.json?text=word7"
    yield "/api/v1/tilesets/"


def _asking(served: FastAPI, address: str) -> Look:
    """Ask a server in this process."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(served, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(address)

    def look() -> bytes:
        answer = asyncio.run(ask())
        if answer.status_code == 500 and "the recording is damaged: " in answer.text:
            raise RecordingError(answer.json()["error"])
        assert answer.status_code == 200, f"{address}: {answer.status_code} {answer.text[:300]}"
        return answer.content

    return look


def _published(recording: Recording, folder: Path) -> bytes:
    """Publish the first head of the last call, and return all that was written."""
    call = recording.stored[-1].facts
    try:
        publish(recording, folder, heads=[f"{call.layer}.0"], depth=0, progress=False)
        files = sorted(file for file in (folder / "data").rglob("*") if file.is_file())
        content = b"".join(file.read_bytes() for file in files)
        return hashlib.sha256(content).digest() + content
    finally:
        shutil.rmtree(folder, ignore_errors=True)
