"""A good recording with something of everything, small enough to be copied hundreds of times."""

from pathlib import Path

import torch

from regard import AttentionMatrix, causal, documents, global_at, neighbours, window
from regard.calls.call import AttentionCall
from regard.matrix.derived import Effects
from regard.patterns import from_mask
from regard.positions import Relative, alibi, from_tensor, softcap
from regard.positions.bias import compose
from regard.recording import save

TOKENS, HEADS = 300, 2


def record(path: Path) -> None:
    """Record a call with effects, patterns and biases of all kinds, and one of weights alone."""
    chance = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=chance)

    relative = Relative(HEADS, 8, 16)
    with torch.no_grad():
        relative.table.copy_(draw(8, HEADS))
    bias = compose(compose(alibi(HEADS), softcap(20.0)), relative)
    bias = compose(bias, from_tensor(draw(1, 1, TOKENS, TOKENS)))
    edges = torch.tensor([(i, j) for i in range(TOKENS) for j in (i, i // 2)])
    packed = documents([0] * 100 + [1] * (TOKENS - 100))
    pattern = (from_mask(draw(TOKENS, TOKENS) < 1) | causal()) & packed & window(90, 9)
    pattern = pattern | neighbours(edges) | global_at([3, 7])
    # Queries in another order than keys.
    order = torch.randperm(TOKENS, generator=chance)
    query, key = (draw(1, heads, TOKENS, 8).bfloat16() for heads in (HEADS, 1))
    weights = draw(1, 1, TOKENS, TOKENS).softmax(-1)
    matrix = AttentionMatrix(query, key, pattern=pattern, bias=bias, positions=order)
    value, gradient = draw(1, 1, TOKENS, 4), draw(1, HEADS, TOKENS, 4)
    effects = Effects(matrix.view.source, value, gradient)
    calls = [
        AttentionCall.of(matrix, recorded_effects=effects),
        AttentionMatrix.from_weights(weights, positions=order),
    ]
    words = [f" word{number}" for number in range(TOKENS)]
    save(calls, path, tokens=words, text="".join(words), sections=[(9, "Nine")], progress=False)
