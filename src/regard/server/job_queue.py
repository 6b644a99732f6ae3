"""A queue of computations for a few threads, newest first.

The newest request runs first: a panning viewer wants the tiles on the screen now. To avoid
starvation, requests that have waited for long alternate with new ones. Identical requests are
computed once. Requests of disconnected clients are dropped. Long computations run in steps, so that
others run in between. A thread can't be killed: one that takes too long is abandoned and replaced.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Hashable
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from queue import SimpleQueue
from typing import Any

import torch

NUM_THREADS = 2
MOST_WAITING = 256
LONG = 1.0
"""Seconds after which a waiting request alternates with new ones."""

PATIENCE = 60.0
"""Timeout of a computation or a step of it, in seconds."""

MOST_ABANDONED = 8
"""Maximum abandoned threads that are replaced."""

STOPPING = 1.0
"""Seconds for running computations when the server stops."""

_setting_threads = threading.Lock()


class Busy(Exception):
    """The queue is full."""


class Overdue(Exception):
    """A computation has timed out."""


class Gone(Exception):
    """The client has disconnected."""


_MORE = object()
"""The result of a step that is not the last."""


class _Job:
    """A computation, and the number of waiting clients.

    Args:
        compute: the function to call.
        turn: the number of the latest request for it.
    """

    def __init__(self, compute: Callable[[], Any], turn: int) -> None:
        loop = asyncio.get_running_loop()
        self._compute = compute
        self._steps: Generator[None, None, Any] | None = None
        self.turn = turn
        self.result: asyncio.Future[Any] = loop.create_future()
        self.num_waiting = 0
        self.since = loop.time()

    @property
    def is_begun(self) -> bool:
        """Whether it is between two steps."""
        return self._steps is not None

    def step(self) -> Any:
        """Run it or its next step; return the result, or `_MORE`."""
        if self._steps is None:
            found = self._compute()
            if not isinstance(found, Generator):
                return found
            self._steps = found
        try:
            next(self._steps)
        except StopIteration as end:
            return end.value
        return _MORE

    def waits_long(self) -> bool:
        """Return whether it has waited longer than `LONG`."""
        return self.result.get_loop().time() - self.since > LONG


class _Worker:
    """A daemon thread that runs computations in order."""

    def __init__(self) -> None:
        self._steps: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        threading.Thread(target=self._work, name="regard-map", daemon=True).start()

    def compute(self, step: Callable[[], Any]) -> Future[Any]:
        """Submit a computation."""
        result: Future[Any] = Future()
        self._steps.put((step, result))
        return result

    def end(self) -> None:
        """Stop the thread after the submitted computations."""
        self._steps.put(None)

    def _work(self) -> None:
        one_thread_each()
        while (found := self._steps.get()) is not None:
            step, result = found
            try:
                result.set_result(step())
            except BaseException as error:  # noqa: BLE001  (raised in the waiting client)
                result.set_exception(error)


class JobQueue:
    """A bounded queue of computations for a few threads: newest first, without duplicates.

    Only the computations run outside of the event loop's thread.

    Args:
        keep: called with the key and the result of each computation.
        threads: number of concurrent computations.
        limit: maximum number of waiting computations.
        patience: timeout of a computation or a step of it, in seconds.

    Attributes:
        computed: number of started computations.
        given_up: number that were dropped because all clients had disconnected.
        refused: number that were refused because the queue was full.
        num_abandoned: number that have timed out and still run.
    """

    def __init__(
        self,
        keep: Callable[[Hashable, Any], None],
        threads: int = NUM_THREADS,
        limit: int = MOST_WAITING,
        patience: float = PATIENCE,
    ) -> None:
        self._keep = keep
        self._patience = patience
        self.limit = limit
        self.computed = 0
        self.given_up = 0
        self.refused = 0
        self.num_abandoned = 0
        self._free = threads
        self._closed = False
        self._turn_of_oldest = False
        self._turns = count()
        self._waiting: OrderedDict[Hashable, _Job] = OrderedDict()
        self._running: dict[Hashable, _Job] = {}
        self._idle: list[_Worker] = []

    @property
    def num_waiting(self) -> int:
        """Number of waiting computations."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Number of running computations."""
        return len(self._running)

    async def result(
        self, key: Hashable, compute: Callable[[], Any], gone: Callable[[], Awaitable[object]]
    ) -> Any:
        """Return the result of a computation.

        Args:
            key: identifies the computation.
            compute: called in one of the threads. A generator is queued again after each `yield`.
            gone: returns when the client has disconnected.

        Raises:
            Busy: the queue is full, or the server is stopping.
            Overdue: it has timed out.
            Gone: the client has disconnected.
        """
        job = self._job(key, compute)
        job.num_waiting += 1
        leaving = asyncio.ensure_future(gone())
        try:
            await asyncio.wait({job.result, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not job.result.done():
                raise Gone
            return job.result.result()
        finally:
            leaving.cancel()
            job.num_waiting -= 1
            if not job.num_waiting and self._waiting.get(key) is job:
                del self._waiting[key]
                self.given_up += 1

    def close(self) -> None:
        """Start nothing more, and refuse waiting and new computations."""
        self._closed = True
        for job in self._waiting.values():
            job.result.set_exception(Busy("the server is stopping"))
            job.result.exception()
        self._waiting.clear()
        for worker in self._idle:
            worker.end()
        self._idle.clear()

    async def finished(self, timeout: float | None = None) -> None:
        """Wait until nothing is running, or until the timeout."""
        running = [job.result for job in self._running.values()]
        if running:
            await asyncio.wait(running, timeout=timeout)

    def _job(self, key: Hashable, compute: Callable[[], Any]) -> _Job:
        if self._closed:
            raise Busy("the server is stopping")
        job = self._running.get(key) or self._waiting.get(key)
        if job is not None:
            job.turn = next(self._turns)
            if key in self._waiting:
                self._waiting.move_to_end(key)
            return job
        if self._free == 0 and len(self._waiting) >= self.limit:
            self.refused += 1
            raise Busy("the server is busy: retry in a second")
        job = self._waiting[key] = _Job(compute, next(self._turns))
        self._begin()
        return job

    def _begin(self) -> None:
        """Start the newest or the longest-waiting computation, if a thread is free."""
        if self._free == 0 or not self._waiting:
            return
        oldest = next(iter(self._waiting.values()))
        self._turn_of_oldest = oldest.waits_long() and not self._turn_of_oldest
        key, job = self._waiting.popitem(last=not self._turn_of_oldest)
        self._free -= 1
        self._running[key] = job
        self.computed += not job.is_begun
        worker = self._idle.pop() if self._idle else _Worker()
        loop = job.result.get_loop()
        overdue = loop.call_later(self._patience, self._abandon, key, job)

        def finished(future: Future[Any]) -> None:
            # The loop is closed if the server was stopped twice.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._end, key, job, worker, overdue, future)

        worker.compute(job.step).add_done_callback(finished)

    def _abandon(self, key: Hashable, job: _Job) -> None:
        """Time out a computation, and abandon its thread."""
        del self._running[key]
        self.num_abandoned += 1
        job.result.set_exception(Overdue(f"the computation timed out after {self._patience:g} s"))
        job.result.exception()
        if self.num_abandoned <= MOST_ABANDONED:
            self._free += 1
        if not self._closed:
            self._begin()

    def _end(
        self,
        key: Hashable,
        job: _Job,
        worker: _Worker,
        overdue: asyncio.TimerHandle,
        future: Future[Any],
    ) -> None:
        if self._running.get(key) is not job:
            self._end_late(worker)
            return
        overdue.cancel()
        self._free += 1
        if self._closed:
            worker.end()
        else:
            self._idle.append(worker)
        del self._running[key]
        error = future.exception()
        if error is None and future.result() is _MORE:
            self._rest(key, job)
        elif error is None:
            job.result.set_result(future.result())
            self._keep(key, future.result())
        else:
            job.result.set_exception(error)
            # Mark as retrieved: there may be no waiting client left.
            job.result.exception()
        if not self._closed:
            self._begin()

    def _end_late(self, worker: _Worker) -> None:
        """Release an abandoned thread whose computation has ended."""
        worker.end()
        if self.num_abandoned > MOST_ABANDONED:
            self._free += 1
        self.num_abandoned -= 1
        if not self._closed:
            self._begin()

    def _rest(self, key: Hashable, job: _Job) -> None:
        """Queue the next step of a computation."""
        if self._closed:
            job.result.set_exception(Busy("the server is stopping"))
            job.result.exception()
        elif not job.num_waiting:
            job.result.cancel()
            self.given_up += 1
        else:
            newer = [name for name, other in self._waiting.items() if other.turn > job.turn]
            self._waiting[key] = job
            for name in newer:
                self._waiting.move_to_end(name)


def one_thread_each() -> None:
    """Set torch's number of threads to 1 for the current thread only.

    The tensors of a tile are small: on a busy machine, several threads wait for each other longer
    than they compute.
    """
    with _setting_threads:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        # New threads inherit the latest setting, so another thread restores it.
        other = threading.Thread(target=torch.set_num_threads, args=(before,))
        other.start()
        other.join()
