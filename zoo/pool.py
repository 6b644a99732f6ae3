"""Types examined in processes of their own, with limits of time and memory."""

import multiprocessing
import resource
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection, wait
from typing import Any

from zoo.result import Result

SECONDS = 120
BYTES = 4 << 30


def _examine(name: str, pipe: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
    from zoo.examine import examine

    try:
        result = examine(name)
    except MemoryError:
        result = Result(name, "cannot be configured", reasons=["more than 4 GB"])
    except Exception as error:  # noqa: BLE001
        import traceback

        result = Result(name, "WRONG", wrong=[f"the zoo raised {type(error).__name__}: {error}"])
        result.notes.append(traceback.format_exc()[-1500:])
    pipe.send(result)
    pipe.close()


def examine_all(names: Iterable[str], jobs: int, told: Callable[[Result], None]) -> None:
    """Examine types, several at once.

    Args:
        names: the types.
        jobs: how many at once.
        told: is told of each result.
    """
    context: Any = multiprocessing.get_context("forkserver")
    # Loading torch and transformers takes longer than most types.
    context.set_forkserver_preload(["zoo.examine", "transformers.modeling_utils"])
    waiting = list(names)[::-1]
    running: dict[Any, tuple[str, Any, float]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            name = waiting.pop()
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_examine, args=(name, theirs))
            process.start()
            theirs.close()
            running[mine] = (name, process, time.monotonic())
        ready = wait(list(running), timeout=1.0)
        for pipe in list(running):
            name, process, started = running[pipe]
            seconds = time.monotonic() - started
            if pipe in ready:
                try:
                    result = pipe.recv()
                except EOFError:
                    process.join()
                    reason = f"its process died ({process.exitcode})"
                    result = Result(name, "cannot be configured", reasons=[reason])
            elif seconds > SECONDS:
                process.kill()
                reason = f"took longer than {SECONDS} s"
                result = Result(name, "cannot be configured", reasons=[reason])
            else:
                continue
            process.join()
            del running[pipe]
            result.seconds = round(seconds, 1)
            told(result)
