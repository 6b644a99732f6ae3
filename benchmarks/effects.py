"""What it costs to take heads and pairs away from a real model: SmolLM2-135M, 270 heads, float32.

    python -m benchmarks.effects [--json] [--only ablate knock_out]

A forward pass over 2,048 tokens, bare, with nine heads ablated, and with 256 keys knocked out of
nine layers, for all their heads and for one; and once more for a single query.

The model's own forward pass is timed without the scores of the next token.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

import regard
from benchmarks._measure import Figure, interleaved, run_parts, versions
from benchmarks.watch import LENGTH, loaded, text

LAYERS = range(10, 19)
KEYS = range(512, 768)


@torch.no_grad()
def ablate() -> list[Figure]:
    model, tokens = loaded(), text(LENGTH)
    heads = [(layer, layer % 9) for layer in LAYERS]
    return _over_bare(model, tokens, {"nine heads ablated": lambda: regard.ablate(model, heads)})


@torch.no_grad()
def knock_out() -> list[Figure]:
    model, tokens = loaded(), text(LENGTH)
    keys, query = regard.pairs(keys=KEYS), regard.pairs(queries=LENGTH - 1, keys=KEYS)
    return _over_bare(
        model,
        tokens,
        {
            "256 keys knocked out of nine layers": lambda: regard.knock_out(
                model, keys, layers=LAYERS
            ),
            "for one head of each": lambda: regard.knock_out(model, keys, layers=LAYERS, heads=[4]),
            "for one query": lambda: regard.knock_out(model, query, layers=LAYERS),
        },
    )


def _over_bare(
    model: Any, tokens: torch.Tensor, ways: dict[str, Callable[[], AbstractContextManager[None]]]
) -> list[Figure]:
    def bare() -> object:
        return model.model(tokens, use_cache=False)

    def altered(way: Callable[[], AbstractContextManager[None]]) -> Callable[[], object]:
        def run() -> object:
            with way():
                return bare()

        return run

    runs = {name: altered(way) for name, way in ways.items()}
    seconds = interleaved(5, bare=bare, **runs)
    return [
        Figure(f"{name}, over bare", seconds[name] / seconds["bare"], "×", "≤ 1.15")
        for name in ways
    ]


if __name__ == "__main__":
    run_parts(__doc__, {"ablate": ablate, "knock_out": knock_out}, versions("transformers"))
