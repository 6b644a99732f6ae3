"""Recordings that are being replaced by others when their writer is killed.

    python -m tests.recording.replacing FOLDER

copies FOLDER/old.regard into some folders, and replaces it there in a process that is killed before
one of the changes by which the new one takes the place of the old one. It prints before which. One
process, which has loaded torch and recorded nothing, forks them all.
"""

import json
import os
import shutil
import signal
import sys
from itertools import chain, count
from pathlib import Path
from typing import Any

import torch

from regard import AttentionMatrix
from regard.recording import Recording, save

TOKENS = 40
CHANGES = ("os.rename", "os.remove", "os.rmdir", "shutil.rmtree")


def record(path: Path, scale: float, **options: Any) -> Recording:
    """Record one call, the same in every process for one scale."""
    x = torch.randn(1, 2, TOKENS, 8, generator=torch.Generator().manual_seed(0))
    matrix = AttentionMatrix(scale * x, x)
    return save(matrix, path, tokens=["a"] * TOKENS, progress=False, **options)


def killed(path: Path, before: int) -> bool:
    """Replace a recording in a fork that is killed before a change; say whether it was."""
    child = os.fork()
    if not child:
        numbers = count()
        begun = False

        def watch(event: str, args: tuple[Any, ...]) -> None:
            nonlocal begun
            # From when the old one is touched.
            begun = begun or (event in CHANGES and str(args[0]) == str(path))
            if begun and event in CHANGES and next(numbers) == before:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        record(path, 2.0, overwrite=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == -signal.SIGKILL


if __name__ == "__main__":
    torch.set_num_threads(1)
    moments: list[int] = []
    # The old one and the new one change places first; then file by file of the old one goes.
    for moment in chain(range(6), count(6, 20)):
        folder = Path(sys.argv[1], str(moment))
        shutil.copytree(Path(sys.argv[1], "old.regard"), folder / "it.regard")
        if not killed(folder / "it.regard", moment):
            break
        moments.append(moment)
    print(json.dumps(moments))
