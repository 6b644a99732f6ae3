"""Sampling of the next token."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def choose(
    logits: Float[Tensor, "batch vocabulary"],
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "batch"]:
    """Choose the next token of each sequence, [batch].

    Args:
        logits: [batch, vocabulary].
        temperature: 0 for greedy decoding; otherwise sample from softmax(logits / temperature).
        top_k: sample from the k most likely tokens.
        top_p: sample from the fewest tokens with at least this probability in total (Holtzman et
            al., 2020), after `top_k`.
        generator: random generator.

    Raises:
        ValueError: an argument is out of its range.

    >>> choose(torch.tensor([[0.0, 3.0, 1.0]]))
    tensor([1])
    """
    if not temperature >= 0:
        raise ValueError(f"temperature must be at least 0, got {temperature}")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must be above 0 and at most 1, got {top_p}")
    if temperature == 0:
        return logits.argmax(dim=-1)

    # 1. Relative to the maximum, so that low temperatures overflow to −inf only.
    logits = logits.double()
    logits = (logits - logits.max(dim=-1, keepdim=True).values) / temperature

    # 2. Drop unlikely tokens.
    ranked, tokens = logits.sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        ranked[:, top_k:] = -torch.inf
    probabilities = ranked.softmax(dim=-1)
    if top_p is not None:
        better = probabilities.cumsum(dim=-1) - probabilities
        probabilities = probabilities.where(better < top_p, probabilities.new_zeros(()))

    # 3. Draw.
    drawn = torch.multinomial(probabilities, 1, generator=generator)
    return tokens.gather(-1, drawn)[:, 0]
