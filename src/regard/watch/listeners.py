"""Who in which thread is to be told of calls, where telling takes a change for all threads."""

import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager

from regard.watch.raw_call import CallListener


class Listeners:
    """Those who are told of calls, each of the calls of its own thread.

    Args:
        begin: makes the change when the first one comes, and returns what takes it back when the
            last one goes.
    """

    def __init__(self, begin: Callable[[], Callable[[], None]]) -> None:
        self._begin = begin
        self._end: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._all: list[tuple[int, CallListener]] = []

    @contextmanager
    def subscribe(self, catcher: CallListener) -> Generator[None]:
        """Tell somebody of the calls of this thread."""
        entry = (threading.get_ident(), catcher)
        with self._lock:
            if not self._all:
                self._end = self._begin()
            # A new list: other threads may be reading the old one.
            self._all = [*self._all, entry]
        try:
            yield
        finally:
            with self._lock:
                self._all = [one for one in self._all if one is not entry]
                if not self._all and self._end is not None:
                    self._end()
                    self._end = None

    def here(self) -> list[CallListener]:
        """Return who is told of the calls of this thread, the latest last."""
        thread = threading.get_ident()
        return [catcher for one, catcher in self._all if one == thread]

    def look_away(self) -> ExitStack:
        """Let everybody in this thread look away; return what ends that."""
        with ExitStack() as paused:
            for catcher in reversed(self.here()):
                paused.enter_context(catcher.paused())
            return paused.pop_all()
