"""Work that takes a while, done by a few threads in an order that suits somebody who moves on.

What was asked for last is done first: a viewer who pans wants what is on the screen now. Where many
viewers ask for more than can be done, somebody would wait for ever, so what has waited for long
takes turns with what is new. Identical requests are computed once. What nobody waits for any more
is not computed, and what takes long rests on its way: others have their turn then, and it is left
if nobody waits for it any more. A thread can't be ended from outside: one whose computation takes
too long is left to itself, and another takes its place.
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
"""After so many seconds, what waits takes turns with what is new."""

PATIENCE = 60.0
"""A computation, or a step of it, may take so many seconds."""

MOST_ABANDONED = 8
"""So many threads may be left to themselves; beyond that, none takes the place of another."""

STOPPING = 1.0
"""What is being computed when the server stops has so many seconds."""

_setting_threads = threading.Lock()


class Busy(Exception):
    """There is too much to do already."""


class Overdue(Exception):
    """It took too long, and was given up."""


class Gone(Exception):
    """Nobody waits for the answer any more."""


_MORE = object()
"""What a step of a computation returns that is not the last."""


class _Job:
    """Something to compute, and how many wait for it.

    Args:
        compute: what to call.
        turn: when it was asked for last, in order.
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
        """Whether it rests between two steps."""
        return self._steps is not None

    def step(self) -> Any:
        """Compute it, or if it has several steps the next; return what was found, or `_MORE`."""
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
        """Say whether it has waited for long."""
        return self.result.get_loop().time() - self.since > LONG


class _Worker:
    """A thread that computes one thing after the other, and keeps no process from ending."""

    def __init__(self) -> None:
        self._steps: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        threading.Thread(target=self._work, name="regard-map", daemon=True).start()

    def compute(self, step: Callable[[], Any]) -> Future[Any]:
        """Begin to compute, after what was begun before."""
        result: Future[Any] = Future()
        self._steps.put((step, result))
        return result

    def end(self) -> None:
        """End, after what was begun."""
        self._steps.put(None)

    def _work(self) -> None:
        one_thread_each()
        while (found := self._steps.get()) is not None:
            step, result = found
            try:
                result.set_result(step())
            except BaseException as error:  # noqa: BLE001  (whoever waits is told)
                result.set_exception(error)


class JobQueue:
    """A bounded queue in front of a few threads: newest first, and each thing once.

    All but the computations happens in the thread of one event loop.

    Args:
        keep: called with the key and the result of each computation, even if nobody waits for it.
        threads: how many computations run at the same time.
        limit: how many may wait for their turn.
        patience: how many seconds a computation, or a step of it, may take.

    Attributes:
        computed: how many computations were begun.
        given_up: how many were never begun, or not finished, because all who had asked were gone.
        refused: how many were refused because too many waited.
        num_abandoned: how many took too long, and still do.
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
        """How many computations wait for their turn."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """How many computations run now."""
        return len(self._running)

    async def result(
        self, key: Hashable, compute: Callable[[], Any], gone: Callable[[], Awaitable[object]]
    ) -> Any:
        """Return what a computation returns.

        Args:
            key: two computations with the same key are the same.
            compute: called in one of the threads. If it is a generator, it runs up to its next
                `yield` and then waits for its turn again.
            gone: returns when the asker has gone.

        Raises:
            Busy: too many computations wait, or the server is about to stop.
            Overdue: it took too long.
            Gone: the asker has gone.
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
        """Begin nothing more, and refuse what waits and what is to come."""
        self._closed = True
        for job in self._waiting.values():
            job.result.set_exception(Busy("the server is stopping"))
            job.result.exception()
        self._waiting.clear()
        for worker in self._idle:
            worker.end()
        self._idle.clear()

    async def finished(self, timeout: float | None = None) -> None:
        """Return when nothing is being computed, or after some seconds."""
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
            raise Busy("there is more to do than can be done soon: ask again in a second")
        job = self._waiting[key] = _Job(compute, next(self._turns))
        self._begin()
        return job

    def _begin(self) -> None:
        """Begin what came last, or what has waited longest, if a thread is free."""
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
            # A server that is stopped twice in a hurry has closed its loop by now.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._end, key, job, worker, overdue, future)

        worker.compute(job.step).add_done_callback(finished)

    def _abandon(self, key: Hashable, job: _Job) -> None:
        """Wait no longer for a computation; its thread is done without."""
        del self._running[key]
        self.num_abandoned += 1
        job.result.set_exception(
            Overdue(f"it took longer than {self._patience:g} s, and was given up")
        )
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
            # Known to all who wait; nobody may be left to be told.
            job.result.exception()
        if not self._closed:
            self._begin()

    def _end_late(self, worker: _Worker) -> None:
        """Let a thread go whose computation was given up before it ended."""
        worker.end()
        if self.num_abandoned > MOST_ABANDONED:
            self._free += 1
        self.num_abandoned -= 1
        if not self._closed:
            self._begin()

    def _rest(self, key: Hashable, job: _Job) -> None:
        """Let a computation wait for its next step, among the others by when it was asked for."""
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
    """Make torch compute in one thread what the current thread computes, and no other.

    The tensors of a tile are small: on a machine that has other things to do, several threads wait
    for each other longer than they compute.
    """
    with _setting_threads:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        # Threads that are made later take over what was set last, so it is set back by another.
        other = threading.Thread(target=torch.set_num_threads, args=(before,))
        other.start()
        other.join()
