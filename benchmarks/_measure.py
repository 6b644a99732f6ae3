"""Timing side by side, and one way to print what was found."""

import gc
import json
import platform
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

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
    best = dict.fromkeys(contenders, float("inf"))
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


def report(figure: Figure, *, as_json: bool) -> None:
    """Print a figure as soon as it is known: a row of a table, or one line of JSON."""
    if as_json:
        print(json.dumps({**asdict(figure), "reached": figure.reached}, ensure_ascii=False))
        return
    verdict = {None: "", True: "reached", False: "not reached"}[figure.reached]
    value = f"{figure.value:.4g} {figure.unit}"
    print(f"{figure.name:<66} {value:>12}  {figure.aim:<8} {verdict:<12} {figure.note}", flush=True)
