"""Requests that are made to harm: slow, large, malformed, many."""

import asyncio
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import httpx
import pytest

from regard.server import connection, job_queue
from regard.server.access import BODY_BYTES
from tests.server.made import Made
from tests.server.running import PATIENCE, Running, served
from tests.server.test_job_queue import wait_until

TOKEN = "a-secret_that.nobody~guesses"


@pytest.fixture(scope="module")
def guarded(book: Made) -> Iterator[Running]:
    with served(book.recording, token=TOKEN) as found:
        yield found


def connected(running: Running) -> socket.socket:
    address = urlsplit(running.url)
    found = socket.create_connection((address.hostname or "", address.port or 80))
    found.settimeout(PATIENCE)
    return found


def answered(one: socket.socket) -> bool:
    """Read the list of recordings."""
    answer = b""
    while b'"recordings":[' not in answer or not answer.endswith(b"}"):
        more = one.recv(2**16)
        if not more:
            return False
        answer += more
    return answer.startswith(b"HTTP/1.1 200")


def said(running: Running, *parts: bytes) -> bytes:
    """Send something by a connection of its own; return all that is answered until it is closed."""
    answer = b""
    # It may be closed while more is on its way.
    with connected(running) as one, suppress(ConnectionError):
        for part in parts:
            one.sendall(part)
        while more := one.recv(2**16):
            answer += more
    return answer


def request(path: str, *headers: bytes, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1".encode(), b"Host: localhost", *headers]
    return b"\r\n".join([*lines, b"", b""])


@pytest.mark.parametrize(
    "header",
    [
        b"Cookie: a=" + b"\\" * 60_000,
        b"X: " + b"x" * 2**20,
        b"\r\n".join([b"X: x"] * 30_000),
        b"Cookie: " + b"a=b;" * 20_000,
    ],
    ids=["backslashes", "long", "many", "cookies"],
)
def test_long_headers_are_refused(guarded: Running, header: bytes) -> None:
    for path in ("/recordings.json", f"/{TOKEN}/recordings.json"):
        answer = said(guarded, request(path, header))
        assert not answer.startswith(b"HTTP/1.1 200")
    assert guarded.get("/recordings.json").status_code == 200


@pytest.mark.parametrize("size", [17_000, 18_500, 20_000])
def test_headers_just_beyond_their_bound_are_refused(guarded: Running, size: int) -> None:
    header = b"X: " + b"x" * size
    answer = said(guarded, request(f"/{TOKEN}/recordings.json", header, b"Connection: close"))
    assert answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))
    shorter = request(f"/{TOKEN}/recordings.json", b"X: " + b"x" * 15_000, b"Connection: close")
    assert said(guarded, shorter).startswith(b"HTTP/1.1 200")


def test_two_ends_of_a_body_are_refused(guarded: Running) -> None:
    path = f"/{TOKEN}/api/v1/tiles/"
    headers = (b"Content-Length: 2", b"Transfer-Encoding: chunked")
    answer = said(guarded, request(path, *headers, method="POST"), b"2\r\n[]\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"must have Content-Length or Transfer-Encoding, got both" in answer


@pytest.mark.parametrize(
    "junk",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        b"\r\n" * 20_000,
    ],
)
def test_what_is_no_request_ends_the_connection(guarded: Running, junk: bytes) -> None:
    answer = said(guarded, junk)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 403"))
    assert guarded.get("/recordings.json").status_code == 200


def test_a_long_body_is_refused(guarded: Running) -> None:
    path = f"/{TOKEN}/api/v1/tiles/"
    whole = request(path, b"Content-Length: 200000000", method="POST")
    answer = said(guarded, whole, *[b" " * 2**16] * 10)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 413")
    chunked = request(path, b"Transfer-Encoding: chunked", method="POST")
    answer = said(guarded, chunked, *[b"10000\r\n" + b" " * 2**16 + b"\r\n"] * 10)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 413")


def test_a_body_up_to_the_limit_is_read(guarded: Running) -> None:
    tiles = [{"tilesetUid": "none_all-mean", "tileIds": ["0.0.0"]}]
    body = httpx.Request("POST", guarded.url, json=tiles).content
    padded = body + b" " * (BODY_BYTES - len(body))
    headers = {"Content-Type": "application/json"}
    for content, status in ((padded, 200), (padded + b" ", 413)):
        answer = guarded.client.post("/api/v1/tiles/", content=content, headers=headers)
        assert answer.status_code == status, answer.text


PARTS = [
    b"",
    b"GET",
    request("/recordings.json")[:-2],
    request(f"/{TOKEN}/api/v1/tiles/", b"Content-Length: 9", method="POST") + b"[",
    # The first is answered, as its whole is there; the second is never finished.
    request(f"/{TOKEN}/recordings.json") + b"GET /",
]


@pytest.mark.parametrize("part", PARTS)
def test_a_request_that_does_not_come_is_not_waited_for(
    guarded: Running, monkeypatch: pytest.MonkeyPatch, part: bytes
) -> None:
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.2)
    with connected(guarded) as one, suppress(ConnectionResetError):
        one.sendall(part)
        if part == PARTS[-1]:
            assert answered(one)
            one.sendall(b" ")
        while one.recv(2**16):
            pass


def test_bytes_one_by_one_are_not_waited_for(
    guarded: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.2)
    with connected(guarded) as one:
        one.settimeout(0.01)
        with suppress(ConnectionError):
            while True:
                one.sendall(b"X")
                with suppress(TimeoutError):
                    if one.recv(1) == b"":
                        return


def test_strangers_do_not_keep_others_out(guarded: Running) -> None:
    """More connections than may be: the oldest go, but not those that have shown the secret."""
    most = connection.most_connections()
    known = connected(guarded)
    asks = request(f"/{TOKEN}/recordings.json")
    known.sendall(asks)
    assert answered(known)
    strangers = [connected(guarded) for _ in range(most + 20)]
    try:
        assert strangers[0].recv(1) == b""
        # One who comes now is served, and so is one who was here.
        assert httpx.get(f"{guarded.url}/recordings.json", trust_env=False).status_code == 200
        known.sendall(asks)
        assert answered(known)
    finally:
        for one in (known, *strangers):
            one.close()


def test_few_files_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (200, 200))
    assert connection.most_connections() == 100


def test_a_refused_request_ends_its_connection(guarded: Running) -> None:
    wrong = request("/wrong/recordings.json")
    answer = said(guarded, wrong * 3)
    assert answer.count(b"HTTP/1.1 403") == 1


def test_work_that_never_ends_is_given_up(book: Made) -> None:
    """As many as there are threads and more: each is told, and others are served meanwhile."""
    release = threading.Event()
    with served(book.recording, threads=1) as running:
        running.work._patience = 0.1

        async def never() -> None:
            await asyncio.Event().wait()

        try:
            for number in range(3):
                asked = asyncio.run_coroutine_threadsafe(
                    running.work.result(("stuck", number), release.wait, never), running.loop
                )
                with pytest.raises(job_queue.Overdue, match=r"timed out after 0\.1 s"):
                    asked.result(PATIENCE)
            assert running.work.num_abandoned == 3
            running.work._patience = PATIENCE
            assert running.get(f"/data/{book.digest}/thumbs/0.bin").status_code == 200
        finally:
            release.set()
        wait_until(lambda: running.work.num_abandoned == 0)


def test_too_much_that_never_ends_takes_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_queue, "MOST_ABANDONED", 2)

    async def run() -> None:
        work = job_queue.JobQueue(lambda key, result: None, threads=1, limit=0, patience=0.05)
        release = threading.Event()
        for number in range(3):
            with pytest.raises(job_queue.Overdue):
                await work.result(number, release.wait, asyncio.Event().wait)
        with pytest.raises(job_queue.Busy):
            await work.result("one more", release.wait, asyncio.Event().wait)
        release.set()
        while work.num_abandoned:
            await asyncio.sleep(0.01)
        assert await work.result("again", lambda: 1, asyncio.Event().wait) == 1
        work.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "path",
    ["/recordings.json", "/api/v1/tilesets/", "/api/v1/tileset_info/?d=x", "/data/{}/info.json"],
)
def test_lists_are_made_by_the_threads_of_the_work(book: Made, path: str) -> None:
    """While they are busy, lists wait, and the event loop answers others."""
    with served(book.recording, threads=1) as running:
        asked = threading.Thread(target=running.get, args=(path.format(book.digest),))
        with running.busy():
            asked.start()
            wait_until(lambda: running.work.num_waiting == 1)
            assert running.get("/map.js").status_code == 200
        asked.join(PATIENCE)
