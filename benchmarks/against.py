"""Compare the speed of this tree with another one's, such as the last release's.

    git worktree add ../before v0.2.0
    python -m benchmarks.against ../before [--only entropy pool ...] [--rounds 10]

Machines are noisy, so that times of two runs can't be compared. Three processes on one core take
turns, call by call: this tree, the other one, and the other one again, whose ratio to itself shows
the noise. The shortest processor time of each counts. float32, one thread.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import regard
from benchmarks._results import ROOT
from regard.matrix import Distance, Entropy, Offsets, Pool, Received, TopKeys
from regard.patterns import Pattern
from regard.positions import alibi

CAUSAL = regard.causal()
LENGTH = 4096


def _tensors(length: int, heads: int = 4, dim: int = 64, **settings: Any) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    sizes = (1, heads, length, dim)
    return [torch.randn(*sizes, generator=generator, **settings) for _ in range(3)]


def _attend(pattern: Pattern, length: int = LENGTH, **options: Any) -> Callable[[], object]:
    query, key, value = _tensors(length)
    return lambda: regard.attend(query, key, value, pattern=pattern, **options)


def _step() -> Callable[[], object]:
    """One token of a generated text, in 30 layers."""
    query, key, value = _tensors(LENGTH)
    last = query[:, :, -1:]
    pattern = CAUSAL & regard.window(before=1023)

    def run() -> None:
        for _ in range(30):
            regard.attend(last, key, value, pattern=pattern)

    return run


def _gradient(pattern: Pattern) -> Callable[[], object]:
    query, key, value = _tensors(2048, requires_grad=True)

    def run() -> None:
        torch.autograd.backward(regard.attend(query, key, value, pattern=pattern).sum())

    return run


def _matrix(
    compute: Callable[[regard.AttentionMatrix], object],
    pattern: Pattern = CAUSAL,
    length: int = LENGTH,
) -> Callable[[], object]:
    """A new matrix each time, as what it has computed is kept."""
    query, key, _ = _tensors(length)
    return lambda: compute(regard.AttentionMatrix(query, key, pattern=pattern))


def _product() -> Callable[[], object]:
    query, key, value = _tensors(LENGTH)
    return lambda: regard.AttentionMatrix(query, key, pattern=CAUSAL) @ value


def _effects_of_keys() -> Callable[[], object]:
    """The first 64 keys masked, for all queries."""
    query, key, value = _tensors(2048)
    gradient = value.flip(2)
    return lambda: regard.EffectMatrix(query, key, value, gradient, pattern=CAUSAL).of_keys(
        slice(64)
    )


def _watch() -> Callable[[], object]:
    """A text of 1,024 tokens through SmolLM2, with two measures of each head kept."""
    from benchmarks.watch import loaded, text

    model, tokens = loaded("sdpa"), text(1024)

    def run() -> None:
        with torch.no_grad(), regard.watch(model, keep=[Entropy(), Offsets(1)]):
            model.model(tokens, use_cache=False)

    return run


ROWS: dict[str, Callable[[], Callable[[], object]]] = {
    "attend": lambda: _attend(CAUSAL),
    "attend, window": lambda: _attend(CAUSAL & regard.window(before=255), 16_384),
    "attend, strided": lambda: _attend(CAUSAL & (regard.window(before=63) | regard.strided(64))),
    "attend, ALiBi": lambda: _attend(CAUSAL, 2048, bias=alibi(4), backend="blocks"),
    "attend, a step": _step,
    "gradient": lambda: _gradient(CAUSAL),
    "gradient, window": lambda: _gradient(CAUSAL & regard.window(before=255)),
    "entropy": lambda: _matrix(lambda A: A.entropy()),
    "received": lambda: _matrix(lambda A: A.received()),
    "entropy, received, distance": lambda: _matrix(
        lambda A: A.summarize(Entropy(), Received(), Distance())
    ),
    "offsets": lambda: _matrix(lambda A: A.summarize(Offsets(16))),
    "pool": lambda: _matrix(lambda A: A.summarize(Pool(512))),
    "top keys": lambda: _matrix(lambda A: A.summarize(TopKeys(8))),
    "five summaries": lambda: _matrix(
        lambda A: A.summarize(Entropy(), Received(), Offsets(16), Pool(512), TopKeys(8))
    ),
    "rows": lambda: _matrix(lambda A: A[0, :, -64:].dense()),
    "A @ V": _product,
    "effects of keys": _effects_of_keys,
    "entropy, window": lambda: _matrix(
        lambda A: A.entropy(), CAUSAL & regard.window(before=255), 16_384
    ),
    "entropy, strided": lambda: _matrix(lambda A: A.entropy(), CAUSAL & regard.strided(64)),
    "watch": _watch,
}
"""What is compared, by name: each makes its tensors and returns the call."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("tree", type=Path, help="another checkout of the project")
    parser.add_argument("--only", nargs="+", choices=ROWS, metavar="ROW", default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=10, help="calls of each row in each process")
    asked = parser.parse_args()

    print(f"{'':30}{'this':>10}{'other':>10}{'ratio':>8}{'noise':>8}")
    with ExitStack() as stack:
        trees = (ROOT, asked.tree.resolve(), asked.tree.resolve())
        processes = [stack.enter_context(_process(tree)) for tree in trees]
        for name in asked.only:
            times = [float("inf")] * len(processes)
            # The first call of each fills caches.
            for number in range(asked.rounds + 1):
                for i, process in enumerate(processes):
                    seconds = _timed(process, name)
                    times[i] = min(times[i], seconds) if number else times[i]
            this, other, again = times
            print(
                f"{name:30}{1e3 * this:7.1f} ms{1e3 * other:7.1f} ms"
                f"{this / other:8.3f}{again / other:8.3f}",
                flush=True,
            )


def _process(tree: Path) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(tree / "src"), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, "-c", "from benchmarks.against import serve; serve()"],
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _timed(process: subprocess.Popen[str], name: str) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    print(name, file=process.stdin, flush=True)
    if not (line := process.stdout.readline()):
        raise RuntimeError(f"the process that runs {name!r} has ended")
    return float(line)


def serve() -> None:
    """Run the rows whose names are read, and print the processor time of each."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    calls: dict[str, Callable[[], object]] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in calls:
            calls = {name: ROWS[name]()}
        start = time.process_time()
        calls[name]()
        print(time.process_time() - start, flush=True)


if __name__ == "__main__":
    main()
