"""Work: newest first, each thing once, nothing for nobody, and not without end."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch

from regard.server.job_queue import LONG, Busy, Gone, JobQueue, one_thread_each
from tests.server.made import Made
from tests.server.running import Running, served

pytestmark = pytest.mark.usefixtures("one_thread")


def forget(key: Hashable, result: Any) -> None:
    """Keep nothing."""


async def never() -> None:
    await asyncio.Event().wait()


async def until(true: Callable[[], bool]) -> None:
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it never came about")


def wait_until(true: Callable[[], bool]) -> None:
    asyncio.run(until(true))


def busy_work(
    test: Callable[[JobQueue, threading.Event, list[str]], Awaitable[None]], **options: Any
) -> None:
    """Run a test on work whose only thread is busy until an event is set."""

    async def run() -> None:
        work = JobQueue(forget, threads=1, **options)
        release = threading.Event()
        first = asyncio.create_task(work.result("first", release.wait, never))
        await until(lambda: work.computed == 1)
        try:
            await test(work, release, [])
        finally:
            release.set()
            await first
            work.close()

    asyncio.run(run())


def test_the_newest_is_done_first() -> None:
    async def test(work: JobQueue, release: threading.Event, order: list[str]) -> None:
        tasks = []
        for name in ("old", "older than new", "new"):
            tasks.append(
                asyncio.create_task(work.result(name, lambda n=name: order.append(n), never))
            )
            await asyncio.sleep(0)
        release.set()
        await asyncio.gather(*tasks)
        assert order == ["new", "older than new", "old"]

    busy_work(test)


def test_what_has_waited_for_long_takes_turns() -> None:
    async def test(work: JobQueue, release: threading.Event, order: list[str]) -> None:
        tasks: list[asyncio.Task[None]] = []
        # Its clock stands still, so that nobody waits for longer than is said here.
        loop = asyncio.get_running_loop()
        now = loop.time()
        loop.time = lambda: now

        async def ask(*names: str) -> None:
            for name in names:
                compute = partial(order.append, name)
                tasks.append(asyncio.create_task(work.result(name, compute, never)))
                await asyncio.sleep(0)

        await ask("long ago", "not so long ago", "a while ago")
        now += LONG + 0.1
        await ask("new", "newer", "newest")
        release.set()
        await asyncio.gather(*tasks)
        assert order == [
            "long ago",
            "newest",
            "not so long ago",
            "newer",
            "a while ago",
            "new",
        ]

    busy_work(test)


def test_what_is_asked_again_is_new() -> None:
    async def test(work: JobQueue, release: threading.Event, order: list[str]) -> None:
        tasks = []
        for name in ("a", "b", "a"):
            tasks.append(
                asyncio.create_task(work.result(name, lambda n=name: order.append(n), never))
            )
            await asyncio.sleep(0)
        release.set()
        await asyncio.gather(*tasks)
        assert order == ["a", "b"]

    busy_work(test)


def test_identical_requests_are_computed_once() -> None:
    async def test(work: JobQueue, release: threading.Event, order: list[str]) -> None:
        def compute() -> int:
            order.append("computed")
            return 42

        tasks = [asyncio.create_task(work.result("same", compute, never)) for _ in range(20)]
        await asyncio.sleep(0)
        release.set()
        assert await asyncio.gather(*tasks) == [42] * 20
        assert order == ["computed"]

    busy_work(test)


def in_steps(name: str, order: list[str], release: threading.Event) -> Any:
    """Compute something in three steps, of which the first waits."""

    def compute() -> Any:
        release.wait()
        for number in range(3):
            order.append(f"{name} {number}")
            if number < 2:
                yield
        return name

    return compute


def test_what_takes_long_rests_for_what_is_newer() -> None:
    async def test(work: JobQueue, release: threading.Event, order: list[str]) -> None:
        tasks: list[asyncio.Task[Any]] = []
        waiting = threading.Event()
        for name in ("older", "long"):
            compute = in_steps(name, order, waiting)
            tasks.append(asyncio.create_task(work.result(name, compute, never)))
            await asyncio.sleep(0)
        release.set()
        await until(lambda: work.computed == 2)
        tasks.append(asyncio.create_task(work.result("new", lambda: order.append("new"), never)))
        await asyncio.sleep(0)
        waiting.set()
        assert await asyncio.gather(*tasks) == ["older", "long", None]
        steps = ["long 0", "new", "long 1", "long 2", "older 0", "older 1", "older 2"]
        assert order == steps
        assert work.computed == 4

    busy_work(test)


def test_what_takes_long_is_left_when_nobody_waits() -> None:
    async def test(work: JobQueue, release: threading.Event, order: list[str]) -> None:
        waiting, left = threading.Event(), asyncio.Event()

        async def gone() -> None:
            await left.wait()

        asked = asyncio.create_task(work.result("left", in_steps("left", order, waiting), gone))
        release.set()
        await until(lambda: work.computed == 2)
        left.set()
        with pytest.raises(Gone):
            await asked
        waiting.set()
        await work.result("next", lambda: order.append("next"), never)
        assert order == ["left 0", "next"]
        assert (work.given_up, work.num_running, work.num_waiting) == (1, 0, 0)
        # Asked for once more, it is computed anew.
        again = in_steps("again", order, waiting)
        assert await work.result("left", again, never) == "again"

    busy_work(test)


def test_what_nobody_waits_for_is_not_computed() -> None:
    async def test(work: JobQueue, release: threading.Event, order: list[str]) -> None:
        left = asyncio.Event()

        async def gone() -> None:
            await left.wait()

        asked = asyncio.create_task(work.result("left", lambda: order.append("left"), gone))
        await asyncio.sleep(0)
        assert work.num_waiting == 1
        left.set()
        with pytest.raises(Gone):
            await asked
        assert (work.num_waiting, work.given_up) == (0, 1)
        release.set()
        await work.result("next", lambda: order.append("next"), never)
        assert order == ["next"]

    busy_work(test)


def test_it_is_computed_if_one_of_two_still_waits() -> None:
    async def test(work: JobQueue, release: threading.Event, order: list[str]) -> None:
        async def at_once() -> None:
            pass

        stays = asyncio.create_task(work.result("same", lambda: "answer", never))
        leaves = asyncio.create_task(work.result("same", lambda: "answer", at_once))
        with pytest.raises(Gone):
            await leaves
        release.set()
        assert await stays == "answer"
        assert work.given_up == 0

    busy_work(test)


def test_a_task_that_is_cancelled_waits_no_more() -> None:
    async def test(work: JobQueue, release: threading.Event, order: list[str]) -> None:
        asked = asyncio.create_task(work.result("left", lambda: order.append("left"), never))
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert (work.num_waiting, work.given_up) == (0, 1)

    busy_work(test)


def test_too_much_is_refused() -> None:
    async def test(work: JobQueue, release: threading.Event, order: list[str]) -> None:
        tasks = [asyncio.create_task(work.result(n, lambda: None, never)) for n in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="retry in a second"):
            await work.result("one more", lambda: None, never)
        assert work.refused == 1
        # What waits already can be asked for by others.
        same = asyncio.create_task(work.result(1, lambda: None, never))
        await asyncio.sleep(0)
        release.set()
        await asyncio.gather(*tasks, same)

    busy_work(test, limit=3)


def test_errors_reach_all_who_wait() -> None:
    async def test(work: JobQueue, release: threading.Event, order: list[str]) -> None:
        def fails() -> None:
            raise ValueError("no")

        tasks = [asyncio.create_task(work.result("same", fails, never)) for _ in range(3)]
        await asyncio.sleep(0)
        release.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in found] == [ValueError] * 3
        assert await work.result("same", lambda: "works again", never) == "works again"

    busy_work(test)


def test_nothing_is_begun_after_the_end() -> None:
    async def test(work: JobQueue, release: threading.Event, order: list[str]) -> None:
        waits = asyncio.create_task(work.result("waits", lambda: order.append("waits"), never))
        await asyncio.sleep(0)
        work.close()
        with pytest.raises(Busy, match="stopping"):
            await waits
        with pytest.raises(Busy, match="stopping"):
            await work.result("late", lambda: None, never)
        release.set()
        await work.finished()
        assert order == []

    busy_work(test)


def test_threads_of_the_work_compute_alone_and_others_as_before() -> None:
    torch.set_num_threads(2)
    with ThreadPoolExecutor(1, initializer=one_thread_each) as pool:
        assert pool.submit(torch.get_num_threads).result() == 1
        assert torch.get_num_threads() == 2
        with ThreadPoolExecutor(1) as others:
            assert others.submit(torch.get_num_threads).result() == 2
        assert pool.submit(torch.get_num_threads).result() == 1
    torch.set_num_threads(1)


def ask_and_wait(running: Running, path: str) -> socket.socket:
    """Ask for something by a connection of its own, and read nothing."""
    address = urlsplit(running.url)
    assert address.hostname is not None
    connection = socket.create_connection((address.hostname, address.port or 80))
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
    return connection


def tile(book: Made, number: int) -> str:
    return f"/data/{book.digest}/tiles/c0-h{number % 3}-mean/2/0/{number // 3}.bin"


def test_a_client_that_leaves_costs_nothing(book: Made) -> None:
    with served(book.recording, threads=1) as running, running.busy():
        connections = [ask_and_wait(running, tile(book, number)) for number in range(6)]
        wait_until(lambda: running.work.num_waiting == 6)
        computed = running.work.computed
        for connection in connections:
            connection.close()
        wait_until(lambda: running.work.num_waiting == 0)
        assert running.work.given_up == 6
        assert running.work.computed == computed
    # And once the thread was free, none of them was computed.
    assert running.work.computed == computed


def test_a_full_queue_is_told(book: Made) -> None:
    with served(book.recording, threads=1, limit=2) as running:
        with running.busy():
            connections = [ask_and_wait(running, tile(book, number)) for number in range(2)]
            wait_until(lambda: running.work.num_waiting == 2)
            answer = running.get(tile(book, 2))
            assert answer.status_code == 503
            assert answer.headers["Retry-After"] == "1"
            assert "retry" in answer.json()["error"]
            assert answer.headers["Cache-Control"] == "no-store"
        wait_until(lambda: running.work.num_waiting == 0)
        assert running.get(tile(book, 2)).status_code == 200
        for connection in connections:
            connection.close()


def test_twenty_clients_ask_for_one_tile(book: Made) -> None:
    with served(book.recording, threads=1) as running, ThreadPoolExecutor(20) as clients:
        with running.busy():
            computed = running.work.computed
            asked = [clients.submit(running.get, tile(book, 4)) for _ in range(20)]
            wait_until(lambda: running.work.num_waiting == 1)
        answers = [one.result() for one in asked]
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.content for answer in answers}) == 1
        assert running.work.computed == computed + 1
