"""Listeners per thread, for capture by a process-wide patch."""

import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial

from torch import nn

from regard.capture.raw_call import CallListener, RawCall


class Listeners:
    """Listeners to calls, each for its own thread.

    Args:
        begin: applies the patch for the first listener, and returns the function that removes it
            after the last.
    """

    def __init__(self, begin: Callable[[], Callable[[], None]]) -> None:
        self._begin = begin
        self._end: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._all: list[tuple[int, CallListener]] = []

    @contextmanager
    def subscribe(self, catcher: CallListener) -> Generator[None]:
        """Subscribe a listener to the calls of this thread."""
        entry = (threading.get_ident(), catcher)
        with self._lock:
            if not self._all:
                self._end = self._begin()
            # A new list: other threads may be reading the old one.
            self._all = sorted([*self._all, entry], key=lambda one: one[1].rank)
        try:
            yield
        finally:
            with self._lock:
                self._all = [one for one in self._all if one is not entry]
                if not self._all and self._end is not None:
                    self._end()
                    self._end = None

    def here(self) -> list[CallListener]:
        """Return the listeners of this thread, by rank, the latest last."""
        thread = threading.get_ident()
        return [catcher for one, catcher in self._all if one == thread]

    def tell(
        self, kernel: str, module: nn.Module | None, read: Callable[[], RawCall]
    ) -> RawCall | None:
        """Notify the listeners of this thread; return the altered call, or None.

        See `CallListener.catch`.
        """
        altered: RawCall | None = None
        for catcher in self.here():
            altered = catcher.catch(kernel, module, read) or altered
            if altered is not None:
                read = partial(_same, altered)
        return altered

    def look_away(self) -> ExitStack:
        """Pause the listeners of this thread; return the stack that resumes them."""
        with ExitStack() as paused:
            for catcher in reversed(self.here()):
                paused.enter_context(catcher.paused())
            return paused.pop_all()


def _same(call: RawCall) -> RawCall:
    return call
