"""What looking into attention costs, against computing it and against writing it down.

    python -m benchmarks.matrix [--json] [--only summary each long parts dense]

float32, heads of 64, causal. What is compared runs side by side; the best of several rounds counts.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import regard
from benchmarks._measure import Figure, in_child, interleaved, peak_bytes, run_parts
from regard.matrix import (
    Distance,
    Edges,
    EffectiveKeys,
    Entropy,
    Mass,
    Offsets,
    Pool,
    Received,
    TopKeys,
)

DIM = 64
LONG = 32_768
FIVE = (Entropy(), Received(), Offsets(16), Pool(512), TopKeys(8))
CAUSAL = regard.causal()


def main() -> None:
    parts = {"summary": summary, "each": each, "long": longer, "parts": parts_of, "dense": dense}
    run_parts(__doc__, parts)


def summary() -> Iterator[Figure]:
    """Five summaries in one pass, against one fused forward pass on the same tensors."""
    query, key, value = _inputs(LONG, heads=4)
    _, lse = regard.attend_with_lse(query, key, value, pattern=CAUSAL)
    times = interleaved(
        4,
        fused=partial(scaled_dot_product_attention, query, key, value, is_causal=True),
        product=partial(_products, query, key),
        alone=lambda: _matrix(query, key).summarize(*FIVE),
        known=lambda: _matrix(query, key, lse).summarize(*FIVE),
    )
    name = f"five summaries at {LONG:,}, 4 heads"
    yield Figure(f"SDPA at {LONG:,}, 4 heads: time", times["fused"], "s")
    product = times["product"] / times["fused"]
    yield Figure(f"the matrix product at {LONG:,}, 4 heads: time over SDPA", product, "×")
    yield Figure(f"{name}: time over SDPA", times["alone"] / times["fused"], "×", "≤ 2.0")
    yield Figure(
        f"{name}, lse given: time over SDPA", times["known"] / times["fused"], "×", "≤ 2.0"
    )
    _, gigabytes = in_child(f"from benchmarks.matrix import child; child({LONG}, 4)")
    yield Figure(f"{name}: peak extra memory", gigabytes * 1e3, "MB", "≤ 128")
    yield Figure(f"{name}: the dense matrices", 4 * LONG**2 * 4 / 1e6, "MB")


def each() -> Iterator[Figure]:
    """Each reduction alone, with the log-sum-exp given."""
    query, key, value = _inputs(LONG, heads=1)
    _, lse = regard.attend_with_lse(query, key, value, pattern=CAUSAL)
    groups = {"every 16th": torch.arange(LONG) % 16 == 0}
    reductions: dict[str, tuple[Any, ...]] = {
        "no reduction": (),
        **{type(one).__name__: (one,) for one in FIVE},
        "EffectiveKeys": (EffectiveKeys(),),
        "Distance": (Distance(),),
        "Edges(0.01)": (Edges(0.01),),
        "Mass": (Mass(groups),),
        "Pool(512, max)": (Pool(512, "max"),),
    }
    contenders: dict[str, Callable[[], object]] = {
        "the matrix product": partial(_products, query, key)
    }
    for name, some in reductions.items():
        contenders[name] = partial(_matrix(query, key, lse).summarize, *some)
    fused = partial(scaled_dot_product_attention, query, key, value, is_causal=True)
    times = interleaved(3, fused=fused, **contenders)
    for name in ("the matrix product", *reductions):
        yield Figure(f"{name} at {LONG:,}: time over SDPA", times[name] / times["fused"], "×")
    learned = interleaved(3, fused=fused, lse=lambda: _matrix(query, key).lse)
    ratio = learned["lse"] / learned["fused"]
    yield Figure(f"the log-sum-exp at {LONG:,}: time over SDPA", ratio, "×")


def longer() -> Iterator[Figure]:
    """The same five at 131,072 positions, one head, in a process of its own."""
    seconds, gigabytes = in_child("from benchmarks.matrix import child; child(131_072, 1)")
    yield Figure("five summaries at 131,072, one head: time", seconds, "s")
    yield Figure("five summaries at 131,072, one head: peak extra memory", gigabytes, "GB", "≤ 1")


def child(length: int, heads: int) -> None:
    query, key, _ = _inputs(length, heads)
    _matrix(query[:, :, :64], key[:, :, :64]).summarize(*FIVE)
    before, start = peak_bytes(), time.perf_counter()
    _matrix(query, key).summarize(*FIVE, progress=False)
    print(time.perf_counter() - start, (peak_bytes() - before) / 1e9)


def parts_of() -> Iterator[Figure]:
    """A tile, a row and a column, in a short sequence and in a long one."""
    short, long = 4_096, 1_048_576
    looks: dict[str, Callable[[int], Callable[[], object]]] = {}
    matrices = {}
    for length in (short, long):
        query, key, _ = _inputs(length, heads=1)
        # Only the time counts, and the true one would take half an hour.
        matrices[length] = _matrix(query, key, torch.full((1, 1, length), 10.0))
    looks["tile"] = lambda n: lambda: matrices[n][0, 0, n - 256 :, n // 2 : n // 2 + 256].dense()
    looks["row"] = lambda n: lambda: matrices[n][0, 0, n - 1]
    looks["column"] = lambda n: lambda: matrices[n][0, 0, :, 0]
    for name, look in looks.items():
        times = interleaved(20, short=look(short), long=look(long))
        yield Figure(f"a {name} at {short:,}: time", times["short"] * 1e3, "ms")
        yield Figure(f"a {name} at {long:,}: time", times["long"] * 1e3, "ms")
        ratio = times["long"] / times["short"]
        if name == "tile":
            yield Figure("a tile: long over short", ratio, "×", "≤ 1.5")
        else:
            growth = ratio / (long / short)
            yield Figure(f"a {name}: growth over linear growth", growth, "×", "≤ 1.0")


def dense() -> Iterator[Figure]:
    """The same five from a matrix that is written down, at the largest length that fits here."""
    length = 16_384
    name = f"five summaries at {length:,}, 4 heads"
    for what, run in (("written down", "written"), ("Regard", "child")):
        found = in_child(f"from benchmarks.matrix import {run}; {run}({length}, 4)")
        yield Figure(f"{name}, {what}: time", found[0], "s")
        yield Figure(f"{name}, {what}: peak extra memory", found[1], "GB")


def written(length: int, heads: int) -> None:
    query, key, _ = _inputs(length, heads)
    with torch.no_grad():
        weights_written_down(query[:, :, :512], key[:, :, :512])
        before, start = peak_bytes(), time.perf_counter()
        weights_written_down(query, key)
    print(time.perf_counter() - start, (peak_bytes() - before) / 1e9)


def weights_written_down(query: Tensor, key: Tensor) -> tuple[Tensor, ...]:
    """Return what people compute today, as they do: from the softmax of all scores."""
    length = query.shape[2]
    scores = query @ key.mT / DIM**0.5
    scores.masked_fill_(torch.ones(length, length, dtype=torch.bool).triu_(1), -torch.inf)
    weights = scores.softmax(dim=-1)
    del scores
    entropy = torch.special.entr(weights).sum(dim=-1)
    received = weights.sum(dim=2) / torch.arange(length, 0, -1)
    offsets = [weights.diagonal(o, 2, 3).sum(dim=-1) / length for o in range(-16, 17)]
    pooled = torch.nn.functional.avg_pool2d(weights, length // 512)
    strongest = weights.topk(8, dim=-1)
    return entropy, received, torch.stack(offsets, dim=-1), pooled, strongest.values


def _products(query: Tensor, key: Tensor) -> None:
    """Compute the scores that a causal pass needs, 256 rows of a head at a time."""
    rows, length = 256, query.shape[2]
    buffer = torch.empty(rows * length)
    for one_query, one_key in zip(query[0], key[0], strict=True):
        for start in range(0, length, rows):
            stop = start + rows
            out = buffer[: rows * stop].view(rows, stop)
            torch.mm(one_query[start:stop], one_key[:stop].T, out=out)


def _inputs(length: int, heads: int) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(1, heads, length, DIM) for _ in range(3)]


def _matrix(query: Tensor, key: Tensor, lse: Tensor | None = None) -> regard.AttentionMatrix:
    return regard.AttentionMatrix(query, key, pattern=CAUSAL, lse=lse)


if __name__ == "__main__":
    main()
