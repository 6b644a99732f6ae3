"""`attend` against PyTorch's attention with a dense mask, where a mask is hard to beat.

    python -m benchmarks.masks [--json] [--only patterns fresh steps]

float32, 1 × 8 heads × 64 where nothing else is said, forward, one thread: many of these calls are
over before a second one has begun. The mask is written down beforehand,
in no time. `patterns`: many pairs, or short sequences. `fresh`: a mask or graph that is new in each
call. `steps`: a text that is being generated, one token at a time for all layers, whose mask is a
row of one that was written down for all of the text.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import regard
from benchmarks._measure import Figure, interleaved, run_parts
from regard.patterns import Pattern, from_mask

HEADS, DIM = 8, 64
ROUNDS = 15
TOKENS = range(650, 714)
"""How many keys there are in each step of the text: more steps than what is remembered of them."""
AIM = "≤ 1.3"
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def main() -> None:
    torch.set_num_threads(1)
    run_parts(__doc__ or "", {"patterns": patterns, "fresh": fresh, "steps": steps})


def patterns() -> Iterator[Figure]:
    """Patterns that are used again and again."""
    near = regard.causal() & regard.window(before=63)
    around = regard.window(before=32, after=32)
    cases = {
        "1,000 global positions of 2,048": (regard.global_at(_some(1_000, 2_048)), 2_048, DIM),
        "2,048 global positions of 4,096": (regard.global_at(_some(2_048, 4_096)), 4_096, DIM),
        "400,000 edges at 2,048": (regard.neighbours(_edges(400_000)), 2_048, DIM),
        "20,000 edges at 2,048": (regard.neighbours(_edges(20_000)), 2_048, DIM),
        "a window or 300 global positions at 1,024": (
            around | regard.global_at(_some(300, 1_024)),
            1_024,
            DIM,
        ),
        "heads of 8, a window of 64 at 400": (near, 400, 8),
    }
    for name, (pattern, length, dim) in cases.items():
        yield _beside_a_mask(name, lambda pattern=pattern: pattern, length, dim)


def fresh() -> Iterator[Figure]:
    """Patterns that are made anew for every call, and used once."""
    edges, few = _edges(400_000), _edges(20_000)
    mask = torch.rand(1_024, 1_024, generator=_seeded()) < 0.3
    yield _beside_a_mask("400,000 edges, new each time", lambda: regard.neighbours(edges), 2_048)
    yield _beside_a_mask("20,000 edges, new each time", lambda: regard.neighbours(few), 2_048)
    yield _beside_a_mask("a mask of 1,024², new each time", lambda: from_mask(mask), 1_024)


def steps() -> Iterator[Figure]:
    """One token after the other."""
    cases = {
        "a window of 256": regard.causal() & regard.window(before=255),
        "every 64th key": regard.causal() & regard.columns(every=64),
        "a window of 64 or every 64th key": regard.causal()
        & (regard.window(before=63) | regard.columns(every=64)),
    }
    for name, pattern in cases.items():
        for layers in (1, 24):
            yield _generated(
                f"a token with {name}, {layers} layer{'s' if layers > 1 else ''}", pattern, layers
            )


def _beside_a_mask(name: str, make: Callable[[], Pattern], length: int, dim: int = DIM) -> Figure:
    query, key, value = (torch.randn(1, HEADS, length, dim) for _ in range(3))
    mask = make().allows(range(length), range(length))

    def ours() -> Tensor:
        return regard.attend(query, key, value, pattern=make())

    def masked() -> Tensor:
        return scaled_dot_product_attention(query, key, value, attn_mask=mask)

    with torch.no_grad():
        torch.testing.assert_close(ours(), masked(), **CLOSE)
        times = interleaved(ROUNDS, ours=ours, masked=masked)
    backend = regard.plan(query, key, value, pattern=make()).backend
    return _figure(name, times, backend)


def _generated(name: str, pattern: Pattern, layers: int) -> Figure:
    query = torch.randn(1, HEADS, 1, DIM)
    key, value = (torch.randn(1, HEADS, TOKENS[-1], DIM) for _ in range(2))
    mask = pattern.allows(range(TOKENS[-1]), range(TOKENS[-1]))
    caches = [(n, key[:, :, :n].contiguous(), value[:, :, :n].contiguous()) for n in TOKENS]

    def ours() -> list[Tensor]:
        return [
            regard.attend(query, k, v, pattern=pattern) for _, k, v in caches for _ in range(layers)
        ]

    def masked() -> list[Tensor]:
        return [
            scaled_dot_product_attention(query, k, v, attn_mask=row)
            for n, k, v in caches
            for row in [mask[n - 1 : n, :n]]
            for _ in range(layers)
        ]

    with torch.no_grad():
        torch.testing.assert_close(ours(), masked(), **CLOSE)
        times = interleaved(ROUNDS, ours=ours, masked=masked)
    return _figure(name, times, regard.plan(query, key, value, pattern=pattern).backend)


def _figure(name: str, times: dict[str, float], backend: str) -> Figure:
    ratio = times["ours"] / times["masked"]
    return Figure(f"{name}: time over a dense mask", ratio, "×", AIM, f"served by {backend}")


def _some(count: int, length: int) -> Tensor:
    return torch.randperm(length, generator=_seeded())[:count]


def _edges(count: int) -> Tensor:
    return torch.randint(0, 2_048, (count, 2), generator=_seeded())


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


if __name__ == "__main__":
    main()
