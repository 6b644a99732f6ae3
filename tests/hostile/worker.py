"""Looks at mutated recordings, each in a process with limits, and says what came of it.

    python -m tests.hostile.worker FOLDER

prints what came of each mutation as a line of JSON. They are looked at in processes that are forked
once torch is loaded, and may take 1 GB more than they have then, and 10 s of the processor a look.
"""

import hashlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch

from regard.recording import RecordingError
from tests.hostile.good import record
from tests.hostile.looks import looks
from tests.hostile.mutations import MUTATIONS, SECRET

MEMORY = 2**30
SECONDS = 10
HANGING = 300
"""So many seconds of the clock, of whatever a process waits for, are a hang."""

AT_ONCE = 50
"""So many are looked at in one process, whose address space only grows."""

Outcome = dict[str, Any]


def outcomes(good: Path, names: Sequence[str | None], folder: Path) -> Iterator[Outcome]:
    """Look at one mutated copy after the other, in another process once one has ended it."""
    while names:
        found: Outcome = {}
        done = 0
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(read)
            _in_child(good, names[:AT_ONCE], folder, write)
        os.close(write)
        with os.fdopen(read) as told:
            for line in told:
                name, look, answer = json.loads(line)
                if look is not None:
                    found["looks"][look] = answer
                    continue
                if found:
                    yield found
                found = {"name": name, "looks": {}, "status": 0}
                done += 1
        found["status"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        yield found
        names = names[done:]


def _in_child(good: Path, names: Sequence[str | None], folder: Path, write: int) -> NoReturn:
    status = 1
    try:
        _limit_memory()
        with os.fdopen(write, "w") as told:
            for name in names:
                print(json.dumps([name, None, None]), file=told, flush=True)
                with tempfile.TemporaryDirectory(dir=folder) as here:
                    for look, answer in _looked(good, name, Path(here)):
                        print(json.dumps([name, look, answer]), file=told, flush=True)
        status = 0
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        os._exit(status)


def _looked(good: Path, name: str | None, folder: Path) -> Iterator[tuple[str, list[str]]]:
    copy = folder / "copy.regard"
    # Whoever changes a file unlinks it first.
    shutil.copytree(good, copy, copy_function=os.link)
    if name is not None:
        MUTATIONS[name](copy)
    for look, take in looks(copy, folder / "published"):
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = int(used.ru_utime + used.ru_stime) + SECONDS + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
        signal.alarm(HANGING)
        yield look, _taken(take)
    signal.alarm(0)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _taken(take: Any) -> list[str]:
    """Return what was answered, or how it was refused; anything else is a fault."""
    try:
        answer = take()
    except RecordingError as error:
        lines = str(error).splitlines()
        return ["refused", lines[0]] if len(lines) == 1 else ["fault", str(error)]
    except BaseException as error:  # noqa: BLE001
        return ["fault", "".join(traceback.format_exception(error))[-1500:]]
    if SECRET in answer:
        return ["fault", "it has bytes of another file"]
    return ["answered", hashlib.sha256(answer).hexdigest()]


def main() -> None:
    torch.set_num_threads(1)
    good = Path(sys.argv[1]) / "good.regard"
    # Zarr starts threads, which no process has that is forked later.
    if not (child := os.fork()):
        record(good)
        os._exit(0)
    assert not os.waitpid(child, 0)[1]
    names = sys.argv[2:] or [*MUTATIONS]
    for outcome in outcomes(good, [None, *names], Path(sys.argv[1])):
        print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
