"""Strangers who attack a server of the map while somebody looks at it.

    python -m benchmarks._map_attack URL

All of them know the address of the server and nobody its secret: some send nothing, some a byte now
and then, some too much, some what is no request, and some a wrong secret.
"""

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

CONNECTIONS = 300
"""So many connections there are at the same time: a fifth of each kind."""

PAUSE = 0.25
"""For about so many seconds each waits before it tries again, or sends its next byte."""

_HEAD = b"GET /wrong/recordings.json HTTP/1.1\r\nHost: localhost\r\n"
_POST = (
    b"POST /wrong/api/v1/tiles/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000000\r\n\r\n"
)


async def silent() -> AsyncIterator[bytes]:
    """Send nothing."""
    await asyncio.sleep(3600)
    yield b""


async def slow() -> AsyncIterator[bytes]:
    """Send a request byte by byte."""
    yield _HEAD
    while True:
        await asyncio.sleep(PAUSE)
        yield b"X"


async def large() -> AsyncIterator[bytes]:
    """Send too much: a cookie, many headers, or a body."""
    what = random.randrange(3)
    if what == 0:
        yield _HEAD + b"Cookie: a=" + b"\\" * 60_000 + b"\r\n\r\n"
    elif what == 1:
        yield _HEAD + b"X: x\r\n" * 20_000 + b"\r\n"
    else:
        yield _POST
        while True:
            yield bytes(2**16)


async def malformed() -> AsyncIterator[bytes]:
    """Send what is no request."""
    yield random.choice([b"\x16\x03\x01" + random.randbytes(500), b"GET\r\n\r\n", b"\r\n" * 9000])


async def wrong() -> AsyncIterator[bytes]:
    """Ask with a wrong secret, several times at once."""
    yield (_HEAD + b"\r\n") * 5


KINDS: tuple[Callable[[], AsyncIterator[bytes]], ...] = (silent, slow, large, malformed, wrong)


@contextmanager
def attacked(url: str) -> Generator[None]:
    """Attack a server by another process until this is left."""
    command = [sys.executable, "-m", "benchmarks._map_attack", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            # It says so when it has begun.
            assert process.stdout.readline()
            yield
        finally:
            process.terminate()


async def attack(host: str, port: int) -> None:
    """Attack a server for ever."""
    await asyncio.gather(
        *(_attacker(host, port, KINDS[number % len(KINDS)]) for number in range(CONNECTIONS))
    )


async def _attacker(host: str, port: int, kind: Callable[[], AsyncIterator[bytes]]) -> None:
    while True:
        with suppress(OSError):
            await _attempt(host, port, kind())
        await asyncio.sleep(random.expovariate(1 / PAUSE))


async def _attempt(host: str, port: int, parts: AsyncIterator[bytes]) -> None:
    """Send what there is by a new connection, until the server closes it."""
    reader, writer = await asyncio.open_connection(host, port)

    async def send() -> None:
        with suppress(OSError):
            async for part in parts:
                writer.write(part)
                await writer.drain()

    sending = asyncio.create_task(send())
    try:
        while await reader.read(2**16):
            pass
    finally:
        sending.cancel()
        writer.transport.abort()


def main() -> None:
    """Attack the server at an address."""
    address = urlsplit(sys.argv[1])
    # They stand for other machines, which leave the processors of the server alone.
    os.nice(19)
    print("begun", flush=True)
    asyncio.run(attack(address.hostname or "", address.port or 80))


if __name__ == "__main__":
    main()
