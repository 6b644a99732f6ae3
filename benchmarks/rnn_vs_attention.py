"""An RNN, an RNN with self-attention, and attention: time, sequential depth, gradients.

    python -m benchmarks.rnn_vs_attention [--json] [--figure docs/images/rnn-vs-attention.svg]

Layers of 64 states, float32, new weights; the mean of 8 sequences. *Time* is that of a forward and
a backward pass, by token. *Depth* is the longest chain of operations that must wait for each other,
counted in the graph of the backward pass. *Gradient* is the norm of the derivative of the last
output by the input some steps before, over that by the last input itself.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

import regard
from benchmarks._measure import Figure, asked, interleaved, report
from regard.layers import MultiHeadAttention, RecurrentSelfAttention

LENGTHS = [32, 64, 128, 256, 512]
DIM = 64
Layer = Callable[[Tensor], Tensor]


def layers() -> dict[str, Layer]:
    torch.manual_seed(0)
    plain = nn.RNN(DIM, DIM, batch_first=True)
    recurrent = RecurrentSelfAttention(DIM, DIM)
    attention = MultiHeadAttention(DIM, num_heads=1, pattern=regard.causal())
    return {
        "RNN": lambda x: plain(x)[0],
        "RNN with self-attention": lambda x: recurrent(x).contexts,
        "attention": attention,
    }


def both_passes(layer: Layer, x: Tensor) -> Tensor:
    return torch.autograd.grad(layer(x).sum(), x)[0]


def depth(output: Tensor) -> int:
    """Return the length of the longest chain in the graph of the backward pass."""
    longest: dict[object, int] = {}
    stack = [output.grad_fn]
    while stack:
        node = stack[-1]
        before = [node for node, _ in node.next_functions if node is not None]
        missing = [node for node in before if node not in longest]
        if missing:
            stack += missing
        else:
            longest[stack.pop()] = 1 + max((longest[node] for node in before), default=0)
    return longest[output.grad_fn]


def gradients(layer: Layer, length: int) -> Tensor:
    """Return the norm of the last output's derivative by each input, from the last one back."""
    x = torch.randn(8, length, DIM, requires_grad=True)
    last = layer(x)[:, -1]
    # The squared norm of the whole derivative is what a random direction shows of it, in the mean.
    total = torch.zeros(length)
    for _ in range(32):
        (grad,) = torch.autograd.grad(last, x, torch.randn_like(last), retain_graph=True)
        total += grad.square().sum(dim=-1).mean(dim=0)
    return total.sqrt().flip(0)


def measured(curves: dict[str, dict[str, list[tuple[int, float]]]]) -> Iterator[Figure]:
    for length in LENGTHS:
        x = torch.randn(8, length, DIM, requires_grad=True)
        runs = {
            name: lambda layer=layer, x=x: both_passes(layer, x) for name, layer in layers().items()
        }
        for name, seconds in interleaved(3, **runs).items():
            per_token = seconds / (8 * length) * 1e6
            curves["time"].setdefault(name, []).append((length, per_token))
            yield Figure(f"{name} at {length}: both passes, by token", per_token, "µs")
    for length in LENGTHS[:2]:
        for name, layer in layers().items():
            chain = depth(layer(torch.randn(1, length, DIM)))
            yield Figure(f"{name} at {length}: sequential depth", chain, "operations")
    for name, layer in layers().items():
        norms = gradients(layer, LENGTHS[-1])
        for distance in (0, *(2**power for power in range(9))):
            share = float(norms[distance] / norms[0])
            curves["gradient"].setdefault(name, []).append((distance, share))
            yield Figure(f"{name}: gradient over a distance of {distance}", share, "of that at 0")


def draw(curves: dict[str, dict[str, list[tuple[int, float]]]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "regard"})
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3), layout="constrained")
    colors = dict(zip(layers(), ("#d1495b", "#edae49", "#00798c"), strict=True))
    for name, color in colors.items():
        left.plot(*zip(*curves["time"][name], strict=True), "o-", color=color, label=name)
        right.plot(*zip(*curves["gradient"][name][1:], strict=True), "o-", color=color)
    left.set(xlabel="tokens", ylabel="both passes, µs by token", yscale="log")
    right.set(xlabel="steps back", ylabel="gradient, of that at 0", yscale="log")
    left.set_xscale("log", base=2)
    right.set_xscale("log", base=2)
    left.set_xticks(LENGTHS, map(str, LENGTHS))
    right.set_xticks([1, 4, 16, 64, 256], ["1", "4", "16", "64", "256"])
    right.set_ylim(1e-9, 3)
    left.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, 0.82))
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", alpha=0.25)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, facecolor="white", metadata={"Date": None})


def main() -> None:
    arguments = asked(__doc__)
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {"time": {}, "gradient": {}}
    for figure in measured(curves):
        report(figure, as_json=arguments.json)
    if arguments.figure:
        draw(curves, arguments.figure)


if __name__ == "__main__":
    main()
