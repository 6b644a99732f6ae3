"""Find the heads of a real model that copy, and those that look at the previous token.

SmolLM2-135M reads random tokens twice. A head that copies looks, from a token of the second time,
at what followed the same token the first time: nothing else in the text would tell it what comes
next. On English text, others look at the token just before. The model runs as it always does;
`regard.watch` looks on.

    python -m examples.known_heads      prints a table; takes about half a minute
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, logging

import regard
from materials import moby_dick, smollm2
from regard.matrix import Offsets

LENGTH = 200
"""The number of random tokens that come twice."""


def main() -> None:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(smollm2()).eval()
    tokenizer = AutoTokenizer.from_pretrained(smollm2())
    book = moby_dick().read_text(encoding="utf-8")[:4_000]
    tokens = torch.tensor([tokenizer(book)["input_ids"]])
    for title, scores in (
        ("share of the mass on what followed the same token earlier", induction(model)),
        ("share of the mass on the previous token", previous(model, tokens)),
    ):
        print(title)
        for layer, head, score in strongest(scores, 5):
            print(f"    layer {layer:2d}, head {head}: {score:.2f}")


@torch.no_grad()
def induction(model: Any, *, length: int = LENGTH, seed: int = 0) -> Float[Tensor, "layers heads"]:
    """Return how much of each head's mass, in a repeat, is on what followed the token before."""
    chance = torch.Generator().manual_seed(seed)
    once = torch.randint(1_000, 40_000, (1, length), generator=chance)
    with regard.watch(model) as seen:
        model(torch.cat([once, once], dim=1))
    offsets = [call.matrix[0, :, length:].offsets(length) for call in seen]
    return torch.stack([found.at(1 - length) for found in offsets])


@torch.no_grad()
def previous(model: Any, tokens: Int[Tensor, "1 sequence"]) -> Float[Tensor, "layers heads"]:
    """Return how much of each head's mass is on the previous token."""
    with regard.watch(model, keep=[Offsets(1)]) as seen:
        model(tokens)
    return torch.stack([call.results[0].previous[0] for call in seen])


def strongest(scores: Float[Tensor, "layers heads"], count: int) -> list[tuple[int, int, float]]:
    """Return layer, head and score of the heads with the largest scores."""
    values, places = scores.flatten().topk(count)
    heads = scores.shape[1]
    pairs = zip(places.tolist(), values.tolist(), strict=True)
    return [(place // heads, place % heads, value) for place, value in pairs]


if __name__ == "__main__":
    main()
