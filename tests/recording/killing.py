"""Recordings whose making is killed, each before another change of a file.

    python -m tests.recording.killing FOLDER COUNT

makes one that is whole, and COUNT that are killed, or as many as there are changes if COUNT is 0.
It prints before which change each of them was. One process, which has loaded torch, forks them all.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import torch

from regard import AttentionMatrix, causal
from regard.recording import Recording, save

TOKENS = 300
CHANGES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.rmtree")


def record(path: Path) -> Recording:
    """Record three calls, the same in every process."""
    x = torch.randn(1, 2, TOKENS, 8, generator=torch.Generator().manual_seed(0))
    calls = [AttentionMatrix(x * (1 + layer), x, pattern=causal()) for layer in range(3)]
    return save(calls, path, tokens=["a"] * TOKENS, progress=False)


def killed(path: Path, before: int | None) -> int | None:
    """Record in a fork that is killed before one of its changes.

    Returns:
        None if it was; otherwise how many it has made. Threads that make the same folders do so in
        a few more or less of them.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        done = kill_before(before, path.parent)
        record(path)
        os.write(writing, str(done()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == (0 if said else -signal.SIGKILL)
    return int(said) if said else None


def kill_before(moment: int | None, folder: Path) -> Callable[[], int]:
    """Kill this process before one of its changes in a folder.

    Returns:
        A function that returns how many it has made.
    """
    numbers, done = count(), 0

    def watch(event: str, args: tuple[Any, ...]) -> None:
        nonlocal done
        if not _changes(event, args, folder):
            return
        number = next(numbers)
        if number == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        done = number + 1

    sys.addaudithook(watch)
    return lambda: done


def _changes(event: str, args: tuple[Any, ...], folder: Path) -> bool:
    """Say whether an event of Python's audit is about to change something in a folder."""
    if event != "open" and event not in CHANGES:
        return False
    # Modules that are compiled when they are first imported are written elsewhere.
    if not isinstance(args[0], str | Path) or not Path(args[0]).is_relative_to(folder):
        return False
    return event != "open" or bool(args[2] & (os.O_WRONLY | os.O_RDWR))


if __name__ == "__main__":
    folder, wanted = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    changes = killed(folder / "whole.regard", None)
    assert changes is not None
    moments = range(0, changes, max(1, changes // wanted) if wanted else 1)
    print(json.dumps([at for at in moments if killed(folder / f"{at}.regard", at) is None]))
