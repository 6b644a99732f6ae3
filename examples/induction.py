"""Show that two layers of attention learn to copy by induction, that one cannot, and how.

Each sequence is a block of random tokens and the same block again. But for its first token, the
repeat can be predicted: find the current token earlier in the sequence, and look at what followed
it there. That takes two layers of attention (Elhage et al., 2021; Olsson et al., 2022): in the
first, a head lets each token see the one before it; in the second, a head looks for the place whose
token before is the current one, and copies what stands there.

A model without feed-forward layers is trained twice, with two layers and with one, on the same
sequences. Fresh ones are drawn at every step, so there is nothing to memorise. The length of the
block is drawn anew for every batch: were it always the same, one layer could copy from a fixed
distance and would look as if it had understood. No token stands twice in a block, so the answer is
never in doubt. Order is told by rotations, which know distances but no places.

    python -m examples.induction      writes induction.svg; takes about 1 minute

Two layers predict the repeat without fault, after a sudden rise; one layer remains near guessing.
The table shows both kinds of heads, and the picture one of each, on a word said twice: to the model
it is as random as any. Head 0.1 is head 1 of layer 0, and beside it stands its score.
"""

import argparse
import string
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from regard.models import TextDecoder

TOKENS = string.ascii_letters
LENGTHS = range(8, 25)
WORD = "machines"


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
        64,
        num_layers,
        num_heads=4,
        hidden_dim=0,
        position_encoding="rotary",
        tied=False,
    )
    # A large model's embeddings start small. So small a model learns twice as fast if they don't.
    torch.nn.init.normal_(model.embedding.tokens.weight)
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
    length = tokens.shape[1] // 2
    previous, induction = [], []
    for matrix in model.matrices(tokens):
        previous.append(matrix[:, :, 1:].offsets(1).previous.mean(dim=0))
        # The earlier copy stands `length` back, and what followed it is one nearer.
        induction.append(matrix[:, :, length:].offsets(length).at(1 - length).mean(dim=0))
    return HeadScores(torch.stack(previous), torch.stack(induction))


def strongest(scores: Tensor) -> tuple[int, int]:
    """Return layer and head of the highest score."""
    return divmod(int(scores.argmax()), scores.shape[1])


def report(scores: HeadScores) -> None:
    print("layer.head   previous token   induction")
    for layer, rows in enumerate(zip(*scores, strict=True)):
        for head, (previous, induction) in enumerate(zip(*rows, strict=True)):
            print(f"{layer}.{head} {previous:22.2f} {induction:11.2f}")


def draw(one: Run, two: Run, scores: HeadScores, path: Path) -> None:
    """Draw the curves of both runs, and the best heads of the second one on a word said twice."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (curves, *maps) = pyplot.subplots(1, 3, figsize=(8, 2.8), layout="constrained")
    labels = (one, "one layer", "#d1495b", 22), (two, "two layers", "#00798c", 89)
    for run, name, color, height in labels:
        means = [100 * part.mean() for part in torch.tensor(run.curve).split(20)]
        curves.plot([20 * number + 10 for number in range(len(means))], means, color=color)
        curves.text(len(run.curve), height, name, color=color, ha="right")
    for bound in (60, 99):
        curves.axhline(bound, color="grey", linewidth=0.8, linestyle=":")
    curves.set_yticks((0, 20, 40, 60, 80, 99))
    curves.yaxis.set_major_formatter("{x} %")
    curves.set(xlabel="steps of training", xlim=(0, None), ylim=(0, 104))
    curves.set_title("Right in the repeat", fontsize=10)

    tokens = torch.tensor([[TOKENS.index(letter) for letter in WORD * 2]])
    matrices = two.model.matrices(tokens)
    for panel, name, found in zip(maps, ("Previous token", "Induction"), scores, strict=True):
        layer, head = strongest(found)
        weights = matrices[layer][0, head].dense().numpy()
        image = panel.imshow(weights, cmap="Blues", vmin=0, vmax=1)
        panel.axvline(len(WORD) - 0.5, color="grey", linewidth=0.8)
        panel.axhline(len(WORD) - 0.5, color="grey", linewidth=0.8)
        panel.set_xticks(range(len(weights)), WORD * 2, fontsize=8)
        panel.set_yticks(range(len(weights)), WORD * 2, fontsize=8, ha="center")
        panel.tick_params(length=0, pad=7)
        panel.set_title(f"{name}, head {layer}.{head}: {found[layer, head]:.2f}", fontsize=10)
        panel.set(xlabel="looked at", ylabel="who looks")
    figure.colorbar(image, ax=maps, label="attention", ticks=[0, 1], aspect=30, pad=0.02)
    figure.savefig(path, dpi=200)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=500, help="of training, for each model")
    parser.add_argument("--seed", type=int, default=0, help="of weights and sequences")
    parser.add_argument("--out", type=Path, default=Path("induction.svg"), help="where to draw")
    arguments = parser.parse_args()
    # The tensors are small: sharing them out to threads would take longer than the work.
    torch.set_num_threads(1)
    runs = [train(layers, steps=arguments.steps, seed=arguments.seed) for layers in (1, 2)]
    for num_layers, run in enumerate(runs, 1):
        share = accuracy(run.model, seed=arguments.seed + 1)
        print(f"layers: {num_layers}   right in the repeat: {share:.1%}")
    chance = torch.Generator().manual_seed(arguments.seed + 2)
    scores = head_scores(runs[1].model, repeated(50, LENGTHS[-1], chance))
    report(scores)
    draw(*runs, scores, arguments.out)
    print(f"drawn in {arguments.out}")


if __name__ == "__main__":
    main()
