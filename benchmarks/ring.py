"""`attend(..., group=)`: bytes, balance, time and memory of a sequence that several ranks share.

    python -m benchmarks.ring [--json] [--only bytes balance time memory paper]

The ranks are processes on one machine that talk through gloo, with one thread each; float32,
1 × 4 heads over 2 key heads × 64. One rank is `attend` without a group. A full ring sends all keys
and values to all ranks. `paper` computes what no machine here could run: 1,048,576 tokens on 64
ranks.
"""

import gc
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, distributed

import regard
from benchmarks._measure import Figure, peak_bytes, run_parts
from regard.attention import ring
from regard.attention.block_sparse import FORWARD_BLOCK
from regard.attention.ring.schedule import rank_work, ring_step
from regard.attention.ring.shards import shard_positions
from regard.patterns import Pattern

HEADS, KEY_HEADS, DIM = 4, 2, 64
LENGTH, RANKS = 65_536, 4
WINDOW = regard.causal() & regard.window(before=255)
COLUMNS = regard.causal() & (regard.window(before=255) | regard.columns(every=256))


def main() -> None:
    parts = {"bytes": sent, "balance": balance, "time": times, "memory": memory, "paper": paper}
    run_parts(__doc__ or "", parts)


def _documents(length: int) -> Pattern:
    return regard.causal() & regard.documents(torch.arange(length) // 10_000)


def _patterns(length: int) -> dict[str, Pattern]:
    documents = _documents(length)
    return {"window": WINDOW, "columns": COLUMNS, "documents": documents, "causal": regard.causal()}


def sent() -> Iterator[Figure]:
    """Rows that are sent in a forward pass, over those of a full ring."""
    for name, pattern in _patterns(LENGTH).items():
        ranks = rank_work(pattern, shard_positions(LENGTH, RANKS), FORWARD_BLOCK)
        share = sum(sum(rank.sent) for rank in ranks) / ((RANKS - 1) * LENGTH)
        aim = "≤ 5" if name == "window" else ""
        what = f"{name} {LENGTH:,} on {RANKS} ranks: bytes sent, of a full ring's"
        yield Figure(what, 100 * share, "%", aim)


def balance() -> Iterator[Figure]:
    """Pairs that the busiest rank computes, over the mean."""
    for name, pattern in _patterns(LENGTH).items():
        ranks = rank_work(pattern, shard_positions(LENGTH, RANKS), FORWARD_BLOCK)
        pairs = [rank.num_pairs for rank in ranks]
        aim = "≤ 1.1" if name == "causal" else ""
        what = f"{name} {LENGTH:,} on {RANKS} ranks: busiest rank over the mean"
        yield Figure(what, max(pairs) * RANKS / sum(pairs), "×", aim)


def times() -> Iterator[Figure]:
    """Two ranks on two cores, over half of the time of one rank on one core."""
    for name, pattern, length in (("causal", regard.causal(), 16_384), ("window", WINDOW, LENGTH)):
        one = max(_on_ranks(1, partial(_seconds, pattern, length)))
        two = max(_on_ranks(2, partial(_seconds, pattern, length)))
        what = f"{name} {length:,} both passes on two ranks"
        yield Figure(f"{what}: time", two, "s")
        yield Figure(f"{what}: time over half of one rank's", 2 * two / one, "×", "≤ 1.3")


def memory() -> Iterator[Figure]:
    """The most memory of a rank, beyond what the process had before."""
    length = 262_144
    one = max(_on_ranks(1, partial(_peak, WINDOW, length)))
    two = max(_on_ranks(2, partial(_peak, WINDOW, length)))
    what = f"window {length:,} both passes on two ranks"
    yield Figure(f"{what}: memory of a rank", two / 1e6, "MB")
    yield Figure(f"{what}: memory of a rank over one rank's alone", two / one, "×", "≤ 0.55")


def paper() -> Iterator[Figure]:
    """Rows and pairs of three ranks of 64 at 1,048,576 tokens, in a forward pass."""
    length, count = 1 << 20, 64
    shards = shard_positions(length, count)
    for name, pattern in _patterns(length).items():
        rows, pairs = [], []
        start = time.perf_counter()
        for rank in (0, count // 2 - 1, count - 1):
            steps = [
                ring_step(pattern, shards, rank, source, FORWARD_BLOCK) for source in range(count)
            ]
            rows.append(sum(len(step.owned) for at, step in enumerate(steps) if at != rank))
            pairs.append(sum(step.layout.num_pairs for step in steps))
        seconds = (time.perf_counter() - start) / 3
        what = f"{name} {length:,} on {count} ranks"
        share = 100 * max(rows) / (length - length // count)
        # Rows of keys and values of 8 heads of 128 features, in 2 bytes.
        size = max(rows) * 8 * 2 * 128 * 2 / 1e6
        yield Figure(f"{what}: bytes that a rank receives", size, "MB")
        yield Figure(f"{what}: bytes that a rank receives, of a full ring's", share, "%")
        yield Figure(f"{what}: pairs of a head that a rank computes", max(pairs) / 1e6, "million")
        yield Figure(f"{what}: time to plan what a rank computes", seconds, "s")


def _inputs(length: int) -> tuple[list[Tensor], Tensor]:
    """Return this rank's query, key and value, and its positions."""
    positions = ring.positions(length)
    torch.manual_seed(distributed.get_rank())
    heads = (HEADS, KEY_HEADS, KEY_HEADS)
    tensors = [torch.randn(1, one, len(positions), DIM, requires_grad=True) for one in heads]
    return tensors, positions


def _step(pattern: Pattern, tensors: list[Tensor], positions: Tensor) -> None:
    options: dict[str, Any] = {"positions": positions, "group": distributed.group.WORLD}
    if distributed.get_world_size() == 1:
        options = {}
    output = regard.attend(*tensors, pattern=pattern, **options)
    torch.autograd.grad(output, tensors, output.detach())


def _seconds(pattern: Pattern, length: int) -> float:
    """Return the time of both passes, the best of three after a first one."""
    inputs = _inputs(length)
    best = float("inf")
    for number in range(4):
        distributed.barrier()
        start = time.perf_counter()
        _step(pattern, *inputs)
        if number:
            best = min(best, time.perf_counter() - start)
    return best


def _peak(pattern: Pattern, length: int) -> float:
    gc.collect()
    before = peak_bytes()
    _step(pattern, *_inputs(length))
    return peak_bytes() - before


def _on_ranks(count: int, function: Callable[[], float]) -> list[float]:
    """Return what a function returns on each of several ranks."""
    with (
        TemporaryDirectory() as folder,
        ProcessPoolExecutor(count, mp_context=get_context("spawn")) as processes,
    ):
        store = Path(folder) / "store"
        jobs = [processes.submit(_on_rank, store, rank, count, function) for rank in range(count)]
        return [job.result() for job in jobs]


def _on_rank(store: Path, rank: int, count: int, function: Callable[[], Any]) -> Any:
    torch.set_num_threads(1)
    address = f"file://{store}"
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=count)
    try:
        return function()
    finally:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
