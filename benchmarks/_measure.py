"""Timing side by side, and one way to print what was found."""

import argparse
import gc
import json
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Figure:
    """One measured number, and what was aimed at.

    `aim` is a bound that the value should keep: "≤ 1.03", "≥ 16", or empty.
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


def interleaved(rounds: int, **contenders: Callable[[], object]) -> dict[str, float]:
    """Return the time of each contender in seconds: the best round's mean.

    Machines are noisy and their speed drifts, so what is to be compared runs side by side, in turn,
    and in each round all get about as much time: a quick one is run several times, and the mean of
    those runs counts.
    """
    once = {name: _seconds(contender, 1) for name, contender in contenders.items()}
    once = {name: min(once[name], _seconds(run, 1)) for name, run in contenders.items()}
    share = min(max(once.values()), 2.0)
    runs = {name: max(1, round(share / seconds)) for name, seconds in once.items()}
    # What is run once in a round was measured as well before the first one.
    best = {name: once[name] if runs[name] == 1 else float("inf") for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            best[name] = min(best[name], _seconds(contender, runs[name]))
    return best


def _seconds(contender: Callable[[], object], runs: int) -> float:
    gc.collect()
    start = time.perf_counter()
    for _ in range(runs):
        contender()
    return (time.perf_counter() - start) / runs


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
    """Say on what the figures were measured."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as lines:
            model = next(x.split(":")[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return (
        f"{model}, {torch.get_num_threads()} threads, "
        f"{torch.backends.cpu.get_cpu_capability()}, Python {platform.python_version()}, "
        f"torch {torch.__version__}"
    )


def in_child(code: str, seconds: float | None = None) -> list[float]:
    """Run code in a process of its own, whose memory is its own, and return what it prints.

    Raises:
        RuntimeError: it failed, or took longer than so many seconds.
    """
    command = [sys.executable, "-c", code]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"not finished after {seconds:.0f} s") from error
    if run.returncode:
        raise RuntimeError(f"{code}\n{run.stderr or f'it was ended by signal {-run.returncode}'}")
    return [float(word) for word in run.stdout.split()]


def run_parts(about: str, parts: Mapping[str, Callable[[], Iterable[Figure]]]) -> None:
    """Run the parts of a benchmark that the command line asks for, and print their figures.

    Args:
        about: what the benchmark is about; its first line is shown by --help.
        parts: by name, what measures.
    """
    parser = argparse.ArgumentParser(description=about.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one line of JSON a figure")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=parts,
        default=list(parts),
        metavar="PART",
        help=f"run only some of: {', '.join(parts)}",
    )
    arguments = parser.parse_args()
    if not arguments.json:
        print(machine())
    for name in arguments.only:
        for figure in parts[name]():
            report(figure, as_json=arguments.json)


def asked(about: str) -> argparse.Namespace:
    """Return what the command line of a benchmark with curves asks for: `json` and `figure`.

    Args:
        about: what the benchmark is about; its first line is shown by --help.
    """
    parser = argparse.ArgumentParser(description=about.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one line of JSON a figure")
    parser.add_argument("--figure", type=Path, help="draw the curves into this file")
    arguments = parser.parse_args()
    if not arguments.json:
        print(machine())
    return arguments


def report(figure: Figure, *, as_json: bool) -> None:
    """Print a figure as soon as it is known: a row of a table, or one line of JSON."""
    if as_json:
        print(json.dumps({**asdict(figure), "reached": figure.reached}, ensure_ascii=False))
        return
    verdict = {None: "", True: "reached", False: "not reached"}[figure.reached]
    value = f"{figure.value:.4g} {figure.unit}"
    print(f"{figure.name:<66} {value:>12}  {figure.aim:<8} {verdict:<12} {figure.note}", flush=True)
