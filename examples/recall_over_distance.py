"""Show who remembers over what distance: RNNs, an RNN with self-attention, and attention.

The first token of a sequence is one of eight and marked. Then come tokens that say nothing, for a
while, and a last one that asks: which was the first? Each model learns that from scratch, at each
distance, with as many states and steps of training as the others.

In a plain RNN what was seen, and in training the gradient, must pass through every step on the way,
and past some distance nothing arrives. Weights that start orthogonal, so that at first a step makes
nothing smaller, carry it further, not for ever. With self-attention, inside an RNN or without one,
the last token looks at the first one directly: one step, whatever the distance.

    python -m examples.recall_over_distance      writes recall.svg; takes about 3 minutes
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import regard
from regard.layers import MultiHeadAttention, RecurrentSelfAttention

NUM_SYMBOLS = 8
INPUT_DIM = NUM_SYMBOLS + 2
STATE_DIM = 32


class Plain(nn.Module):
    """Remember in the state of an RNN."""

    def __init__(self, *, orthogonal: bool = False) -> None:
        super().__init__()
        self.states = nn.RNN(INPUT_DIM, STATE_DIM, batch_first=True)
        if orthogonal:
            nn.init.orthogonal_(self.states.weight_hh_l0)

    def forward(self, x: Tensor) -> Tensor:
        return self.states(x)[0][:, -1]


class Recurrent(nn.Module):
    """Look back at the states of an RNN."""

    def __init__(self) -> None:
        super().__init__()
        self.states = RecurrentSelfAttention(INPUT_DIM, STATE_DIM, align="bilinear")

    def forward(self, x: Tensor) -> Tensor:
        return self.states(x).contexts[:, -1]


class Attention(nn.Module):
    """Look back at the tokens themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(INPUT_DIM, STATE_DIM)
        self.look = MultiHeadAttention(STATE_DIM, num_heads=1, pattern=regard.causal())

    def forward(self, x: Tensor) -> Tensor:
        return self.look(self.embedding(x))[:, -1]


KINDS = {
    "RNN": Plain,
    "RNN, orthogonal": partial(Plain, orthogonal=True),
    "RNN with self-attention": Recurrent,
    "attention": Attention,
}


def examples(count: int, distance: int, chance: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return sequences, [count, distance + 1, INPUT_DIM], and what is to be recalled, [count]."""
    symbols = torch.randint(NUM_SYMBOLS, (count, distance + 1), generator=chance)
    x = torch.zeros(count, distance + 1, INPUT_DIM)
    x[..., :NUM_SYMBOLS] = nn.functional.one_hot(symbols, NUM_SYMBOLS)
    x[:, 0, NUM_SYMBOLS] = 1
    x[:, -1] = 0
    x[:, -1, NUM_SYMBOLS + 1] = 1
    return x, symbols[:, 0]


def recall(kind: str, distance: int, *, steps: int, seed: int = 0) -> float:
    """Train a model, and return the share of new sequences of which it recalls the first token."""
    torch.manual_seed(seed)
    chance = torch.Generator().manual_seed(seed)
    model = nn.Sequential(KINDS[kind](), nn.Linear(STATE_DIM, NUM_SYMBOLS))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        x, answer = examples(64, distance, chance)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), answer).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        x, answer = examples(1000, distance, chance)
        return (model(x).argmax(dim=-1) == answer).float().mean().item()


def draw(found: dict[str, list[float]], distances: Sequence[int], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(5, 3.4), layout="constrained")
    for name, marker in zip(found, "osD^", strict=True):
        axis.plot(distances, found[name], marker=marker, label=name)
    axis.axhline(1 / NUM_SYMBOLS, color="grey", linestyle=":", label="guessing")
    axis.set(
        xscale="log", xlabel="steps between token and question", ylabel="recalled", ylim=(0, 1.05)
    )
    axis.set_xticks(distances, map(str, distances), minor=False)
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--distances", type=int, nargs="+", default=[5, 10, 20, 40, 80])
    parser.add_argument("--steps", type=int, default=400, help="of training, for each model")
    parser.add_argument("--out", type=Path, default=Path("recall.svg"), help="where to draw")
    arguments = parser.parse_args()
    # The tensors are small: sharing them out to threads would take longer than the work.
    torch.set_num_threads(1)
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    print("distance", *KINDS, sep="   ")
    for distance in arguments.distances:
        for kind, shares in found.items():
            shares.append(recall(kind, distance, steps=arguments.steps))
        print(f"{distance:8}", *(f"{s[-1]:{len(k)}.2f}" for k, s in found.items()), sep="   ")
    draw(found, arguments.distances, arguments.out)
    print(f"drawn in {arguments.out}")


if __name__ == "__main__":
    main()
