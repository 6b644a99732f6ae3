"""Processes that talk to one another through gloo, started once for many tests."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

Ranks = Callable[..., list[Any]]
"""Calls a function of a module on every rank, and returns what each returned or raised."""


@contextmanager
def ranks(count: int, **environment: str) -> Generator[Ranks]:
    """Start processes; yield what calls a function on all of them, with the same arguments."""
    spawn = get_context("spawn")
    with TemporaryDirectory() as folder:
        pipes = [spawn.Pipe() for _ in range(count)]
        started = [
            spawn.Process(
                target=_serve,
                args=(theirs, rank, count, Path(folder) / "store", environment),
                daemon=True,
            )
            for rank, (_, theirs) in enumerate(pipes)
        ]
        for process, (_, theirs) in zip(started, pipes, strict=True):
            process.start()
            theirs.close()
        ours = [mine for mine, _ in pipes]

        def call(function: Callable[..., Any], *arguments: Any) -> list[Any]:
            for pipe in ours:
                pipe.send((function, arguments))
            return [_received(pipe) for pipe in ours]

        try:
            yield call
        finally:
            for process in started:
                process.kill()
                process.join()


def _received(pipe: Connection) -> Any:
    try:
        return pipe.recv()
    except EOFError:
        return EOFError("the process is gone")


def _serve(
    pipe: Connection, rank: int, count: int, store: Path, environment: dict[str, str]
) -> None:
    import os

    # As torchrun has them.
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
    os.environ |= environment
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=count
    )
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer = function(*arguments)
        except Exception as error:  # noqa: BLE001
            answer = error
        pipe.send(answer)
