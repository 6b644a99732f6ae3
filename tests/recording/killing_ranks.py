"""Recordings of two ranks, of which one is killed before a change of a file, and continued.

    python -m tests.recording.killing_ranks FOLDER COUNT

makes one that is whole, and about COUNT of which either rank is killed. It prints a list of those:
rank, change, whether the other rank has raised, whether something incomplete was left, and the exit
codes of both ranks when they record it again. One process, which has loaded torch, forks them all.
"""

import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed

from regard import AttentionMatrix, causal
from regard.calls import AttentionCall
from regard.recording import save
from tests.recording.killing import kill_before

TOKENS = 300
RAISED = 3


def calls(rank: int | None = None) -> list[AttentionCall]:
    """Return three calls of four heads, or the two heads of a rank."""
    chance = torch.Generator().manual_seed(0)
    query = torch.randn(1, 4, TOKENS, 8, generator=chance)
    key = torch.randn(1, 2, TOKENS, 8, generator=chance)
    found: list[AttentionCall] = []
    for layer in range(3):
        q, k = (1 + layer) * query, key
        if rank is not None:
            q, k = q[:, 2 * rank : 2 * rank + 2], k[:, rank : rank + 1]
        matrix = AttentionMatrix(q, k, pattern=causal())
        call = AttentionCall.of(matrix, module=f"layers.{layer}.attention", index=layer)
        found.append(call if rank is None else call.sharded(2 * rank, 4))
    return found


def recorded(path: Path, killed: int | None, moment: int | None) -> list[tuple[int, int]]:
    """Record in two forks, of which one is killed; return their exit codes and changes."""
    store = path.with_suffix(f".{killed}.{moment}.store")
    found: list[tuple[int, int]] = []
    started: list[tuple[int, int]] = []
    for rank in (0, 1):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            _record(path, store, rank, moment if rank == killed else None, writing)
        os.close(writing)
        started.append((child, reading))
    for child, reading in started:
        with os.fdopen(reading) as answer:
            said = answer.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        found.append((code, int(said or 0)))
    store.unlink(missing_ok=True)
    return found


def _record(path: Path, store: Path, rank: int, moment: int | None, writing: int) -> None:
    """Record as a rank, and end the process."""
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=60),
    )
    done = kill_before(moment, path.parent)
    code = 0
    try:
        save(calls(rank), path, tokens=["a"] * TOKENS, progress=False)
    except RuntimeError:
        code = RAISED
    os.write(writing, str(done()).encode())
    os._exit(code)


if __name__ == "__main__":
    folder, wanted = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    changes = [number for _, number in recorded(folder / "whole.regard", None, None)]
    told: list[tuple[int, int, bool, bool, list[int]]] = []
    for rank, number in enumerate(changes):
        for moment in range(0, number, max(1, 2 * number // wanted)):
            path = folder / f"{rank}.{moment}.regard"
            codes = [code for code, _ in recorded(path, rank, moment)]
            if codes[rank] != -signal.SIGKILL:
                continue
            left = path.with_name(path.name + ".partial").exists()
            again = [] if path.exists() else [code for code, _ in recorded(path, None, None)]
            told.append((rank, moment, codes[1 - rank] == RAISED, left, again))
    print(json.dumps(told))
