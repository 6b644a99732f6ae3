"""Threads that watch at the same time see their own."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

import regard
from tests.capture.traces import MODELS, llama, same, stack

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers", "no_trace")


@contextmanager
def many_switches() -> Iterator[None]:
    """Let threads interrupt each other as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def in_threads(*tasks: Callable[[], None]) -> None:
    """Run all at once, and raise what one of them raised."""
    faults: list[BaseException] = []
    together = threading.Barrier(len(tasks))

    def run(task: Callable[[], None]) -> None:
        try:
            together.wait()
            task()
        except BaseException as fault:
            faults.append(fault)
            raise

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    with many_switches():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if faults:
        raise faults[0]


class TestThreads:
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    def test_each_sees_its_own(self) -> None:
        prepared = {name: prepare() for name, prepare in MODELS.items()}
        prepared["another"] = llama()
        expected = {}
        for name, (model, given) in prepared.items():
            with regard.watch(model) as seen, torch.no_grad():
                model(**given)
            expected[name] = [(call.module, call.matrix.dense()) for call in seen]
        unwatched, unwatched_given = llama()
        with torch.no_grad():
            output = unwatched(**unwatched_given)[0]

        def watching(name: str) -> None:
            model, given = prepared[name]
            with torch.no_grad():
                for _ in range(8):
                    with regard.watch(model) as seen:
                        model(**given)
                    assert [call.module for call in seen] == [
                        module for module, _ in expected[name]
                    ]
                    for call, (_, weights) in zip(seen, expected[name], strict=True):
                        same(call.matrix.dense(), weights)

        def not_watching() -> None:
            with torch.no_grad():
                for _ in range(20):
                    assert torch.equal(unwatched(**unwatched_given)[0], output)

        in_threads(not_watching, *(lambda name=name: watching(name) for name in prepared))

    def test_watching_in_one_thread_running_in_another(self) -> None:
        model, given = llama()
        with regard.watch(model) as seen:
            in_threads(lambda: model(**given))
            assert len(seen) == 0
            model(**given)
        assert len(seen) == 2

    def test_nobody_is_missed_when_others_come_and_go(self) -> None:
        model, given = llama()
        done = threading.Event()

        def coming_and_going() -> None:
            other = stack(1)
            while not done.is_set():
                with pytest.raises(RuntimeError, match="no attention"), regard.watch(other):
                    pass

        def watching() -> None:
            try:
                for _ in range(12):
                    with regard.watch(model, check=False) as seen, torch.no_grad():
                        model(**given)
                    assert len(seen) == 2
            finally:
                done.set()

        in_threads(coming_and_going, coming_and_going, watching)
