"""Timing side by side, and one way to print what was found."""

import argparse
import gc
import importlib.metadata
import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

T = TypeVar("T")


@dataclass(frozen=True)
class Figure:
    """One measured number, and what was aimed at.

    Attributes:
        name: says what was measured; no other figure of the benchmark has the same.
        value: NaN if there is none, and `note` says why.
        unit: of the value.
        aim: a bound that the value should keep: "≤ 1.03", "≥ 16", or empty.
        note: what else there is to know.
    """

    name: str
    value: float
    unit: str
    aim: str = ""
    note: str = ""

    @property
    def reached(self) -> bool | None:
        if not self.aim:
            return None
        sign, bound = self.aim.split()
        return self.value <= float(bound) if sign == "≤" else self.value >= float(bound)


def interleaved(
    rounds: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
    **contenders: Callable[[], object],
) -> dict[str, float]:
    """Return the time of each contender in seconds: the best round's mean.

    Machines are noisy and their speed drifts, so what is to be compared runs side by side, in turn,
    and in each round all get about as much time: a quick one is run several times, and the mean of
    those runs counts. By `time.process_time` as the clock, other processes count less still.
    """
    once = {name: _seconds(contender, 1, clock) for name, contender in contenders.items()}
    once = {name: min(once[name], _seconds(run, 1, clock)) for name, run in contenders.items()}
    share = min(max(once.values()), 2.0)
    runs = {name: max(1, round(share / seconds)) for name, seconds in once.items()}
    # What is run once in a round was measured as well before the first one.
    best = {name: once[name] if runs[name] == 1 else float("inf") for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            best[name] = min(best[name], _seconds(contender, runs[name], clock))
    return best


def _seconds(contender: Callable[[], object], runs: int, clock: Callable[[], float]) -> float:
    gc.collect()
    start = clock()
    for _ in range(runs):
        contender()
    return (clock() - start) / runs


def cpu_timed(run: Callable[[], T]) -> tuple[T, float]:
    """Return a result and the processor time that it took, which other processes don't change."""
    start = time.process_time()
    return run(), time.process_time() - start


def peak_bytes() -> int:
    """Return the most memory that this process has held so far.

    On Linux not by `getrusage`, whose answer starts with that of the parent process.
    """
    try:
        with open("/proc/self/status") as lines:
            return 1024 * next(int(x.split()[1]) for x in lines if x.startswith("VmHWM"))
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def machine() -> str:
    """Say on what the figures are measured."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as lines:
            model = next(x.split(":")[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        pass
    model = model.replace("(R)", "").replace("(TM)", "")
    threads = torch.get_num_threads()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return (
        f"{model}, {threads} thread{'s' if threads > 1 else ''}, "
        f"{torch.backends.cpu.get_cpu_capability()}, {memory:.0f} GB of memory"
    )


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python, torch and packages, of those that are installed."""
    found = {"Python": platform.python_version(), "torch": torch.__version__}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


class OutOfMemory(RuntimeError):
    """A process needed more memory than it may take."""


def in_child(
    code: str, seconds: float | None = None, python: str | Path = sys.executable
) -> list[float]:
    """Run code in a process of its own, whose memory is its own, and return what it prints.

    Args:
        code: what to run. The last line that it prints has numbers.
        seconds: how long it may take.
        python: the interpreter: that of a peer, if it has one.

    Raises:
        OutOfMemory: it needed more memory than it may take.
        RuntimeError: it failed otherwise, or took longer than so many seconds.
    """
    command = [str(python), "-c", code]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"not finished after {seconds:.0f} s") from error
    if run.returncode:
        lacking = any(sign in run.stderr for sign in ("MemoryError", "allocate memory"))
        problem = run.stderr or f"it was ended by signal {-run.returncode}"
        raise (OutOfMemory if lacking else RuntimeError)(f"{code}\n{problem}")
    return [float(word) for word in run.stdout.strip().split("\n")[-1].split()]


def run_parts(
    about: str,
    parts: Mapping[str, Callable[[], Iterable[Figure]]],
    measured_with: Mapping[str, str] | None = None,
) -> None:
    """Run the parts of a benchmark that the command line asks for, and print their figures.

    Args:
        about: what the benchmark is about; its first line is shown by --help.
        parts: by name, what measures.
        measured_with: the versions of what is measured; of Python and torch by default.
    """
    parser = parser_of(about)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=parts,
        default=list(parts),
        metavar="PART",
        help=f"run only some of: {', '.join(parts)}",
    )
    arguments = parser.parse_args()
    introduce(machine(), measured_with or versions(), as_json=arguments.json)
    for name in arguments.only:
        for figure in parts[name]():
            report(figure, as_json=arguments.json)


def asked(about: str) -> argparse.Namespace:
    """Return what the command line of a benchmark with curves asks for: `json` and `figure`.

    Args:
        about: what the benchmark is about; its first line is shown by --help.
    """
    parser = parser_of(about)
    parser.add_argument("--figure", type=Path, help="draw the curves into this file")
    arguments = parser.parse_args()
    introduce(machine(), versions(), as_json=arguments.json)
    return arguments


def parser_of(about: str) -> argparse.ArgumentParser:
    """Return a parser with what all benchmarks take."""
    parser = argparse.ArgumentParser(description=about.split("\n")[0])
    explanation = "print lines of JSON: one on machine and versions, then one a figure"
    parser.add_argument("--json", action="store_true", help=explanation)
    return parser


def introduce(machine: str, versions: Mapping[str, str], *, as_json: bool) -> None:
    """Print on what, and with which versions is measured, before the figures."""
    if as_json:
        print(json.dumps({"machine": machine, "versions": dict(versions)}), flush=True)
        return
    print(f"{machine}; {', '.join(map(' '.join, versions.items()))}", flush=True)


def report(figure: Figure, *, as_json: bool) -> None:
    """Print a figure as soon as it is known: a row of a table, or one line of JSON."""
    if as_json:
        found = {**as_object(figure), "reached": figure.reached}
        print(json.dumps(found, ensure_ascii=False), flush=True)
        return
    verdict = {None: "", True: "reached", False: "not reached"}[figure.reached]
    value = f"{figure.value:.4g} {figure.unit}"
    print(f"{figure.name:<66} {value:>12}  {figure.aim:<8} {verdict:<12} {figure.note}", flush=True)


def as_object(figure: Figure) -> dict[str, Any]:
    """Return a figure for JSON, which has no NaN."""
    return {**asdict(figure), "value": None if math.isnan(figure.value) else figure.value}
