"""Patches of functions that are shared by all threads, with a receiver of calls per thread."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from regard.capture.call import Receiver


class Patch:
    """A patch that is applied while any thread has a receiver.

    Args:
        begin: applies the patch, and returns the function that removes it.
    """

    def __init__(self, begin: Callable[[], Callable[[], None]]) -> None:
        self._begin = begin
        self._end: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._num_receivers = 0
        # Not by the number of a thread, which a later one may get.
        self._thread = threading.local()

    @contextmanager
    def subscribed(self, receiver: Receiver) -> Generator[None]:
        """Return a context in which a receiver gets the calls of this thread."""
        with self._lock:
            if not self._num_receivers:
                self._end = self._begin()
            self._num_receivers += 1
        self._thread.receiver = receiver
        try:
            yield
        finally:
            if self.receiver() is receiver:
                self._thread.receiver = None
            with self._lock:
                self._num_receivers -= 1
                if not self._num_receivers and self._end is not None:
                    self._end()
                    self._end = None

    def receiver(self) -> Receiver | None:
        """Return the receiver of this thread."""
        return getattr(self._thread, "receiver", None)
