"""`attend` against bare PyTorch, compiled FlexAttention, local-attention and x-transformers.

    python -m benchmarks.attend [--json] [--only noise dense window sparse layer million growth]

float32, 1 × 8 heads × 64. What is compared runs side by side; the best of several rounds counts.
`noise`: the very same call, timed against itself. `layer`: a whole layer of attention, projections
included, against that of x-transformers with the same weights. Others that have the same mask give
the same numbers, which is checked first; causal SDPA is what one runs who has no window.
"""

import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import regard
from benchmarks._measure import Figure, in_child, interleaved, peak_bytes, run_parts, versions
from regard.layers import MultiHeadAttention

HEADS, DIM = 8, 64
LONG = 16_384
LAYER = 8_192
"""x-transformers makes a mask of n × n for a window, so it is measured where that still fits."""
WINDOW = regard.causal() & regard.window(before=255)
SPARSE = regard.causal() & (regard.window(before=63) | regard.columns(every=64))
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def main() -> None:
    parts = {"noise": noise, "dense": dense, "window": window, "sparse": sparse, "layer": layer}
    parts |= {"million": million, "growth": growth}
    run_parts(__doc__, parts, versions("local-attention", "x-transformers"))


def noise() -> Iterator[Figure]:
    """The same call against itself: what differs from 1 is the noise of this machine."""
    same = _sdpa(is_causal=True)
    for what, times in _both_ways(8_192, 8, one=same, other=same):
        ratio = times["one"] / times["other"]
        yield Figure(f"causal SDPA 8,192 {what}: time over itself", ratio, "×")


def dense() -> Iterator[Figure]:
    """What `attend` adds to the kernel that it calls."""
    for length, rounds in ((2_048, 20), (8_192, 8)):
        for name, pattern in (("dense", None), ("causal", regard.causal())):
            ours = _attend(pattern)
            theirs = _sdpa(is_causal=pattern is not None)
            for what, times in _both_ways(length, rounds, ours=ours, theirs=theirs):
                ratio = times["ours"] / times["theirs"]
                yield Figure(f"{name} {length:,} {what}: time over bare SDPA", ratio, "×", "≤ 1.03")


def window() -> Iterator[Figure]:
    """A window of 256 keys, against all of the past and against others with the same window."""
    name = f"window of 256 at {LONG:,}"
    contenders = {"ours": _attend(WINDOW), "past": _sdpa(is_causal=True)}
    forward = contenders | {"flex": _flex(LONG), "local": _local_attention()}
    with torch.no_grad():
        inputs = _inputs(LONG)
        for other in (forward["flex"], forward["local"]):
            torch.testing.assert_close(forward["ours"](*inputs), other(*inputs), **CLOSE)
        times = interleaved(5, **{k: _bound(f, inputs) for k, f in forward.items()})
    ours = times["ours"]
    yield Figure(f"{name} forward: faster than causal SDPA", times["past"] / ours, "×", "≥ 16")
    yield Figure(f"{name} forward: faster than FlexAttention", times["flex"] / ours, "×", "≥ 1")
    yield Figure(f"{name} forward: faster than local-attention", times["local"] / ours, "×")
    both = contenders | {"local": _local_attention()}
    times = interleaved(5, **_trained(LONG, both))
    ours = times["ours"]
    yield Figure(f"{name} both passes: faster than causal SDPA", times["past"] / ours, "×", "≥ 12")
    faster = times["local"] / ours
    yield Figure(f"{name} both passes: faster than local-attention", faster, "×", "≥ 3")


def sparse() -> Iterator[Figure]:
    """64 neighbours and every 64th position."""
    name = f"64 near and every 64th at {LONG:,}"
    contenders = {"ours": _attend(SPARSE), "past": _sdpa(is_causal=True)}
    for what, times in _both_ways(LONG, 5, **contenders):
        aim = "≥ 10" if what == "both passes" else ""
        ratio = times["past"] / times["ours"]
        yield Figure(f"{name} {what}: faster than causal SDPA", ratio, "×", aim)


def layer() -> Iterator[Figure]:
    """A layer with its projections: all of the past, and a window of 256 keys."""
    yield from _beside_x_transformers("causal", regard.causal(), None)
    yield from _beside_x_transformers("a window of 256", WINDOW, 255)
    for name, who in (("Regard", 0), ("x-transformers", 1)):
        (gigabytes,) = in_child(f"from benchmarks.attend import one_layer; one_layer({who})")
        what = f"layer, a window of 256 at {LAYER:,} forward: peak extra memory of {name}"
        yield Figure(what, gigabytes, "GB")


def _beside_x_transformers(
    name: str, pattern: regard.patterns.Pattern, past: int | None
) -> Iterator[Figure]:
    ours, theirs = _layers(pattern, past)
    short = torch.randn(1, 1_024, HEADS * DIM)
    torch.testing.assert_close(ours(short), theirs(short), **CLOSE)
    x = torch.randn(1, LAYER, HEADS * DIM, requires_grad=True)

    def trained(one: nn.Module) -> object:
        return torch.autograd.grad(one(x).sum(), [x, *one.parameters()])

    with torch.no_grad():
        times = interleaved(3, ours=lambda: ours(x), theirs=lambda: theirs(x))
    what, than = f"layer, {name} at {LAYER:,}", "faster than x-transformers"
    yield Figure(f"{what} forward: {than}", times["theirs"] / times["ours"], "×")
    times = interleaved(3, ours=lambda: trained(ours), theirs=lambda: trained(theirs))
    yield Figure(f"{what} both passes: {than}", times["theirs"] / times["ours"], "×")


def one_layer(who: int) -> None:
    run = _layers(WINDOW, 255)[who]
    x = torch.randn(1, LAYER, HEADS * DIM)
    with torch.no_grad():
        run(x[:, :64])
        before = peak_bytes()
        run(x)
    print((peak_bytes() - before) / 1e9)


def million() -> Iterator[Figure]:
    """One forward pass over 1,048,576 positions, in a process of its own to see its memory."""
    seconds, gigabytes = in_child("from benchmarks.attend import one_million; one_million()")
    name = "window of 256 at 1,048,576, one head, forward"
    yield Figure(f"{name}: time", seconds, "s")
    yield Figure(f"{name}: peak extra memory", gigabytes, "GB", "≤ 4")


def one_million() -> None:
    query, key, value = (torch.randn(1, 1, 1 << 20, DIM) for _ in range(3))
    pattern = regard.window(before=255)
    with torch.no_grad():
        small = (x[:, :, :4096] for x in (query, key, value))
        regard.attend(*small, pattern=pattern)
        before = peak_bytes()
        start = time.perf_counter()
        regard.attend(query, key, value, pattern=pattern)
        seconds = time.perf_counter() - start
    print(seconds, (peak_bytes() - before) / 1e9)


def growth() -> Iterator[Figure]:
    """Time a token as sequences grow."""
    attention = _attend(WINDOW)
    lengths = [4_096, 16_384, 65_536, 262_144]
    with torch.no_grad():
        contenders = {str(n): _bound(attention, _inputs(n)) for n in lengths}
        times = interleaved(5, **contenders)
    each = {n: times[str(n)] / n * 1e6 for n in lengths}
    for length, microseconds in each.items():
        yield Figure(f"window of 256 at {length:,} forward: time a token", microseconds, "µs")
    spread = max(each.values()) / min(each.values())
    yield Figure("window of 256: slowest over fastest time a token", spread, "×", "≤ 1.25")


def _inputs(length: int, *, train: bool = False) -> list[Tensor]:
    torch.manual_seed(0)
    shape = (1, HEADS, length, DIM)
    return [torch.randn(shape, requires_grad=train) for _ in range(3)]


def _bound(attention: Attention, inputs: list[Tensor]) -> Callable[[], Tensor]:
    return lambda: attention(*inputs)


def _trained(length: int, contenders: dict[str, Attention]) -> dict[str, Callable[[], object]]:
    inputs = _inputs(length, train=True)
    upstream = torch.randn(1, HEADS, length, DIM)

    def run(attention: Attention) -> Callable[[], object]:
        return lambda: torch.autograd.grad(attention(*inputs), inputs, upstream)

    return {name: run(attention) for name, attention in contenders.items()}


def _both_ways(
    length: int, rounds: int, **contenders: Attention
) -> Iterator[tuple[str, dict[str, float]]]:
    with torch.no_grad():
        inputs = _inputs(length)
        bound = {name: _bound(attention, inputs) for name, attention in contenders.items()}
        yield "forward", interleaved(rounds, **bound)
    yield "both passes", interleaved(rounds, **_trained(length, contenders))


def _attend(pattern: regard.patterns.Pattern | None) -> Attention:
    return lambda query, key, value: regard.attend(query, key, value, pattern=pattern)


def _sdpa(*, is_causal: bool) -> Attention:
    return lambda *inputs: scaled_dot_product_attention(*inputs, is_causal=is_causal)


def _flex(length: int) -> Attention:
    """Return FlexAttention as its users write it."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def near(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (query - key <= 255)

    mask = create_block_mask(near, None, None, length, length, device="cpu")
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda *inputs: compiled(*inputs, block_mask=mask)


def _local_attention() -> Attention:
    from local_attention import LocalAttention

    local = LocalAttention(
        window_size=255,
        causal=True,
        look_backward=1,
        exact_windowsize=True,
        autopad=True,
        use_rotary_pos_emb=False,
    )
    return lambda *inputs: local(*inputs)


def _layers(pattern: regard.patterns.Pattern, past: int | None) -> tuple[nn.Module, nn.Module]:
    """Return a layer of ours and one of x-transformers that have the same weights."""
    from x_transformers.x_transformers import Attention as TheirAttention

    torch.manual_seed(0)
    size = HEADS * DIM
    ours = MultiHeadAttention(size, HEADS, projection_bias=False, pattern=pattern)
    theirs = TheirAttention(
        size, dim_head=DIM, heads=HEADS, causal=True, flash=True, max_attend_past=past
    )
    names = {"query": "to_q", "key": "to_k", "value": "to_v", "output": "to_out"}
    weights = ours.state_dict()
    theirs.load_state_dict(
        {f"{their}.weight": weights[f"{our}.weight"] for our, their in names.items()}
    )
    return ours, theirs


if __name__ == "__main__":
    main()
