"""Show that self-attention gives the two apples of one sentence different vectors.

An encoder starts from a table with one vector for each word, so both apples start as the same
vector; only their positions differ. Layer by layer they look around, and part. Each comes nearer to
its own kind: to the apples of other sentences that are fruit, or that are the company.

    python -m examples.apple                        writes apple.svg; takes some seconds

The model is MiniLM, 6 layers of 12 heads, in `regard.models.TextEncoder`. It was trained to make
one vector of a whole sentence, so its last layers draw all words of a sentence together again.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity
from transformers import AutoModel, AutoTokenizer, logging

from materials import minilm
from regard import AttentionMatrix
from regard.models import TextEncoder

SENTENCE = "The engineer from Apple peeled an apple."
NAMES = ("Apple, the company", "apple, the fruit")
COMPANY = (
    "Apple sold more phones.",
    "He works for Apple.",
    "Apple and its rivals sued.",
    "Shares of Apple rose.",
    "Google and Apple hired again.",
)
FRUIT = (
    "He ate an apple and a pear.",
    "The apple fell from the tree.",
    "An apple is sweet.",
    "Mother baked an apple pie.",
    "The juice is made of apple and grape.",
)


@dataclass(frozen=True)
class Finding:
    """What was found in the sentence.

    Attributes:
        words: its tokens.
        apples: where the two apples stand.
        embeddings: the two apples in the table of words, [2, dim].
        states: the two apples before and after each layer, [layers + 1, 2, dim].
        kinds: the same of other sentences, in the mean, company and fruit, [layers + 1, 2, dim].
        matrices: the attention matrices of all layers.
    """

    words: list[str]
    apples: list[int]
    embeddings: Tensor
    states: Tensor
    kinds: Tensor
    matrices: list[AttentionMatrix]

    @property
    def similarities(self) -> list[float]:
        """How alike the two apples are before and after each layer, as cosines."""
        return cosine_similarity(self.states[:, 0], self.states[:, 1], dim=-1).tolist()

    @property
    def leanings(self) -> Tensor:
        """How alike each apple is to company and fruit, as cosines, [layers + 1, apples, kinds]."""
        return cosine_similarity(self.states[:, :, None], self.kinds[:, None], dim=-1)

    @property
    def seen(self) -> Tensor:
        """How much each apple looks at each token, the mean over all heads, [2, tokens]."""
        rows = [matrix.rows(self.apples)[0].mean(dim=0) for matrix in self.matrices]
        return torch.stack(rows).mean(dim=0)


@torch.no_grad()
def find() -> Finding:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder = minilm()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    encoder = TextEncoder.from_transformers(AutoModel.from_pretrained(folder))
    apple = tokenizer.convert_tokens_to_ids("apple")

    def read(sentence: str) -> tuple[Tensor, list[int]]:
        tokens = torch.tensor([tokenizer(sentence)["input_ids"]])
        return tokens, (tokens[0] == apple).nonzero()[:, 0].tolist()

    def states_of_apples(sentence: str) -> Tensor:
        tokens, apples = read(sentence)
        return torch.cat(encoder.states(tokens))[:, apples]

    def mean_of(sentences: tuple[str, ...]) -> Tensor:
        return torch.cat([states_of_apples(sentence) for sentence in sentences], dim=1).mean(dim=1)

    tokens, apples = read(SENTENCE)
    return Finding(
        words=tokenizer.convert_ids_to_tokens(tokens[0].tolist()),
        apples=apples,
        embeddings=encoder.embedding.tokens(tokens)[0, apples],
        states=states_of_apples(SENTENCE),
        kinds=torch.stack([mean_of(COMPANY), mean_of(FRUIT)], dim=1),
        matrices=encoder.matrices(tokens),
    )


def report(finding: Finding) -> None:
    print(SENTENCE)
    same = torch.equal(*finding.embeddings)
    print(f"in the table of words the two apples are {'one vector' if same else 'two vectors'}")
    print("cosines         of the two   Apple: company  fruit   apple: company  fruit")
    for layer, similarity in enumerate(finding.similarities):
        where = f"after layer {layer}" if layer else "as they enter"
        (a, b), (c, d) = finding.leanings[layer].tolist()
        print(f"{where:16} {similarity:8.2f} {a:16.2f} {b:7.2f} {c:16.2f} {d:7.2f}")


def draw(finding: Finding, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplot_mosaic(
        [["alike", "kind"], ["seen", "seen"]],
        figsize=(8, 5.4),
        height_ratios=(1.5, 1),
        layout="constrained",
    )
    panels["alike"].plot(finding.similarities, "o-", color="black")
    panels["alike"].set(ylabel="cosine of the two apples", title="They enter alike, and part")
    company, fruit = finding.leanings.unbind(dim=-1)
    for apple, name in enumerate(NAMES):
        panels["kind"].plot((fruit - company)[:, apple].tolist(), "o-", label=name)
    panels["kind"].axhline(0, color="grey", linewidth=0.8)
    panels["kind"].set(ylabel="cosine to fruit − to company", title="Each comes nearer to its kind")
    panels["kind"].set_ylim(-0.085, 0.115)
    panels["kind"].legend(loc="upper left", frameon=False)
    for panel in (panels["alike"], panels["kind"]):
        panel.set_xlabel("layers passed")
        panel.grid(alpha=0.3)

    # More than half goes to [CLS] and [SEP], which say nothing of apples.
    words, seen = finding.words[1:-1], finding.seen[:, 1:-1]
    image = panels["seen"].imshow(seen.numpy(), aspect="auto", cmap="Blues", vmin=0)
    panels["seen"].set_xticks(range(len(words)), words)
    panels["seen"].set_yticks(range(2), NAMES)
    panels["seen"].set_title("What each looks at in the sentence, mean of all heads")
    figure.colorbar(image, ax=panels["seen"], label="attention")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("apple.svg"), help="where to draw")
    arguments = parser.parse_args()
    finding = find()
    report(finding)
    draw(finding, arguments.out)
    print(f"drawn in {arguments.out}")


if __name__ == "__main__":
    main()
