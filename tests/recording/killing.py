"""Recordings whose making is killed, each before another change of a file.

    python -m tests.recording.killing FOLDER COUNT

makes one that is whole, and COUNT that are killed, or as many as there are changes if COUNT is 0.
It prints before which change each of them was. One process, which has loaded torch, forks them all.
"""

import json
import os
import signal
import sys
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


def killed(path: Path, before: int | None) -> int:
    """Record in a fork that is killed before one of its changes; return how many it was to make."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        numbers = count()
        done = 0

        def watch(event: str, args: tuple[Any, ...]) -> None:
            nonlocal done
            if not _changes(event, args):
                return
            number = next(numbers)
            if number == before:
                os.kill(os.getpid(), signal.SIGKILL)
            done = number + 1

        sys.addaudithook(watch)
        record(path)
        os.write(writing, str(done).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    _, status = os.waitpid(child, 0)
    expected = 0 if before is None else -signal.SIGKILL
    assert os.waitstatus_to_exitcode(status) == expected
    return int(said) if said else 0


def _changes(event: str, args: tuple[Any, ...]) -> bool:
    """Say whether an event of Python's audit is about to change something on disk."""
    if event == "open":
        return isinstance(args[2], int) and bool(args[2] & (os.O_WRONLY | os.O_RDWR))
    return event in CHANGES


if __name__ == "__main__":
    folder, wanted = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    changes = killed(folder / "whole.regard", None)
    step = max(1, changes // wanted) if wanted else 1
    moments = list(range(0, changes, step))
    for moment in moments:
        killed(folder / f"{moment}.regard", moment)
    print(json.dumps(moments))
