"""Show that two layers of attention learn to copy by induction, that one cannot, and how.

Each sequence is a block of random tokens and the same block again. From the second token of the
repeat on, what comes next is known to whoever finds the current token earlier in the sequence and
looks at what followed it there. That takes two layers of attention (Elhage et al., 2021; Olsson et
al., 2022): in the first, a head lets each token see the one before it; in the second, a head looks
for the place whose token before is the current one, and copies what stands there.

A model without feed-forward layers is trained twice, with two layers and with one, on the same
sequences. Fresh ones are drawn at every step, so there is nothing to memorise. The length of the
block is drawn anew for every batch: were it always the same, one layer could copy from a fixed
distance and would look as if it had understood. No token stands twice in a block, so the answer is
never in doubt. Order is told by rotations, which know distances but no places.

    python -m examples.induction      writes induction.svg; takes about 1 minute

Two layers predict the repeat without fault, after a sudden rise; one layer remains near guessing.
The table shows the two kinds of heads, and the picture one of each on a sequence of 16 letters.
"""

import argparse
import string
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import regard
from regard.matrix import Mass
from regard.models import TextDecoder

TOKENS = string.ascii_letters
LENGTHS = range(8, 17)
NUM_HEADS = 4


class Run(NamedTuple):
    """A trained model, and the share of its predictions that were right at each step."""

    model: TextDecoder
    curve: list[float]


class HeadScores(NamedTuple):
    """How much heads look where they should, in the mean, [layers, heads] each.

    Attributes:
        previous: the share that falls on the token just before.
        induction: in the repeat, the share that falls on what followed the current token earlier.
    """

    previous: Tensor
    induction: Tensor


def repeated(count: int, length: int, chance: torch.Generator) -> Tensor:
    """Return blocks of tokens that differ, each block twice, [count, 2 · length]."""
    orders = torch.rand(count, len(TOKENS), generator=chance).argsort(dim=1)
    return orders[:, :length].repeat(1, 2)


def predict(model: TextDecoder, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits, [predictions, vocabulary], and answers of what can be known: the repeat."""
    length = tokens.shape[1] // 2
    return model(tokens)[:, length:-1].flatten(0, 1), tokens[:, length + 1 :].flatten()


def correct(logits: Tensor, answers: Tensor) -> float:
    return (logits.argmax(dim=-1) == answers).float().mean().item()


def train(num_layers: int, *, steps: int, seed: int) -> Run:
    """Train a model of attention alone on sequences that it has never seen."""
    torch.manual_seed(seed)
    chance = torch.Generator().manual_seed(seed)
    model = TextDecoder(
        len(TOKENS),
        model_dim=64,
        num_layers=num_layers,
        num_heads=NUM_HEADS,
        hidden_dim=0,
        positions="rotary",
        tied=False,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3, betas=(0.9, 0.98))
    curve: list[float] = []
    for _ in range(steps):
        length = LENGTHS[int(torch.randint(len(LENGTHS), (), generator=chance))]
        logits, answers = predict(model, repeated(32, length, chance))
        optimizer.zero_grad()
        cross_entropy(logits, answers).backward()
        optimizer.step()
        # No sequence comes twice, so training and test are the same thing here.
        curve.append(correct(logits, answers))
    return Run(model.eval(), curve)


@torch.no_grad()
def accuracy(model: TextDecoder, *, seed: int, count: int = 50) -> float:
    """Return the share of right predictions on new sequences, `count` of each length of block."""
    chance = torch.Generator().manual_seed(seed)
    found = [predict(model, repeated(count, length, chance)) for length in LENGTHS]
    return correct(*map(torch.cat, zip(*found, strict=True)))


@torch.no_grad()
def head_scores(model: TextDecoder, tokens: Tensor) -> HeadScores:
    """Return what heads look at, in sequences as `repeated` makes them."""
    followed = torch.nn.functional.pad(tokens[:, :-1], (1, 0), value=-1)
    after_copy = regard.given(tokens[:, :, None] == followed[:, None, :])
    repeat = tokens.shape[1] // 2
    previous, induction = [], []
    for matrix in model.matrices(tokens):
        previous.append(matrix[:, :, 1:].offsets(1).previous.mean(dim=0))
        (mass,) = matrix[:, :, repeat:].summarize(Mass({"after the copy": after_copy}))
        induction.append(mass.share[..., 0].mean(dim=0))
    return HeadScores(torch.stack(previous), torch.stack(induction))


def strongest(scores: Tensor) -> tuple[int, int]:
    """Return layer and head of the highest score."""
    layer, head = divmod(int(scores.argmax()), scores.shape[1])
    return layer, head


def report(scores: HeadScores) -> None:
    print("layer.head   previous token   induction")
    for layer, rows in enumerate(zip(*scores, strict=True)):
        for head, (previous, induction) in enumerate(zip(*rows, strict=True)):
            print(f"{layer}.{head} {previous:22.2f} {induction:11.2f}")


def draw(runs: dict[str, Run], scores: HeadScores, tokens: Tensor, path: Path) -> None:
    """Draw the curves of all runs, and two heads of the last one on a sequence, [1, sequence]."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        1, 3, figsize=(8, 2.9), width_ratios=(1.1, 1, 1), layout="constrained"
    )
    smooth = 20
    for (name, run), color in zip(runs.items(), ("#d1495b", "#00798c"), strict=True):
        means = torch.tensor(run.curve).unfold(0, smooth, smooth).mean(dim=1)
        steps = smooth * torch.arange(1, len(means) + 1)
        panels[0].plot(steps, means, color=color, label=name)
    for bound in (0.6, 0.99):
        panels[0].axhline(bound, color="grey", linewidth=0.8, linestyle=":")
    panels[0].set_yticks([0, 0.2, 0.4, 0.6, 0.8, 0.99])
    panels[0].set(xlabel="steps of training", ylim=(0, 1.03), xlim=(0, None))
    panels[0].set_title("Right in the repeat", fontsize=10)
    panels[0].legend(loc="center right", frameon=False)

    letters = [TOKENS[token] for token in tokens[0]]
    matrices = list(runs.values())[-1].model.matrices(tokens)
    for panel, name, found in zip(panels[1:], ("Previous token", "Induction"), scores, strict=True):
        layer, head = strongest(found)
        panel.imshow(matrices[layer][0, head].dense(), cmap="Blues", vmin=0, vmax=1)
        panel.axvline(len(letters) / 2 - 0.5, color="grey", linewidth=0.8)
        panel.axhline(len(letters) / 2 - 0.5, color="grey", linewidth=0.8)
        panel.set_xticks(range(len(letters)), letters, fontfamily="monospace", fontsize=8)
        panel.set_yticks(range(len(letters)), letters, fontfamily="monospace", fontsize=8)
        panel.tick_params(length=0)
        panel.set_title(f"{name}: head {layer}.{head}, {found[layer, head]:.2f}", fontsize=10)
        panel.set(xlabel="looked at", ylabel="who looks")
    figure.savefig(path, dpi=200)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=800, help="of training, for each model")
    parser.add_argument("--seed", type=int, default=0, help="of weights and sequences")
    parser.add_argument("--out", type=Path, default=Path("induction.svg"), help="where to draw")
    arguments = parser.parse_args()
    # The tensors are small: sharing them out to threads would take longer than the work.
    torch.set_num_threads(1)
    runs: dict[str, Run] = {}
    for num_layers, name in ((1, "one layer"), (2, "two layers")):
        runs[name] = run = train(num_layers, steps=arguments.steps, seed=arguments.seed)
        print(f"{name}: {accuracy(run.model, seed=arguments.seed + 1):.1%} of the repeat is right")
    chance = torch.Generator().manual_seed(arguments.seed + 2)
    scores = head_scores(runs["two layers"].model, repeated(50, LENGTHS[-1], chance))
    report(scores)
    draw(runs, scores, repeated(1, LENGTHS[0], chance), arguments.out)
    print(f"drawn in {arguments.out}")


if __name__ == "__main__":
    main()
