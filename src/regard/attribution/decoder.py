"""What must be true of a model to say which tokens of a prompt its answer used."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.interventions import knock_out
from regard.patterns import pairs

_FEW = 8
"""So many tokens are enough to see whether one reaches others."""


def check_decoder(model: Any, tokens: Int[Tensor, "1 length"]) -> bool | None:
    """Raise ValueError if a token reaches earlier ones; return whether one goes past attention.

    The first few tokens run as they are, with another one at the end, and with another one at the
    beginning, to which no other attends. If earlier tokens notice the last one, the model is no
    decoder. If later ones notice the first, it reaches them in layers of another kind, such as
    state-space layers and convolutions.

    Args:
        model: the model.
        tokens: some that it knows.

    Returns:
        Whether tokens reach later ones past attention; None if the first one could not be kept from
        attention, so that this can't be told.
    """
    few = tokens[:, :_FEW].repeat(3, 1)
    num_tokens = model.get_input_embeddings().weight.shape[0]
    few[1, -1], few[2, 0] = (few[0, [-1, 0]] + 1) % num_tokens
    hidden = pairs(queries=slice(1, None), keys=[0])
    name = type(model).__name__
    with torch.no_grad():
        try:
            with knock_out(model, hidden):
                output, known = model(few), True
        except (ValueError, RuntimeError):
            output, known = model(few), False
    if not hasattr(output, "logits"):
        raise ValueError(f"{name} returns no logits: use AutoModelForCausalLM")
    logits = output.logits.float()
    if bool(logits.isnan().any()):
        raise ValueError(f"{name} returns NaN")
    plain, other_end, other_beginning = logits
    # Half precision rounds each row of a batch in its own way.
    precision = 8 * torch.finfo(output.logits.dtype).eps
    if not _alike(plain[:-1], other_end[:-1], within=max(1e-2, precision)):
        raise ValueError(f"{name} attends to later tokens: a decoder is needed")
    if not known:
        return None
    return not _alike(plain[1:], other_beginning[1:], within=max(1e-3, precision))


def _alike(one: Tensor, other: Tensor, *, within: float) -> bool:
    """Return whether logits differ by no more than rounding: relative to the largest of them."""
    largest = one.masked_fill(~one.isfinite(), 0.0).abs().amax() if one.numel() else 0.0
    return torch.allclose(one, other, rtol=within, atol=within * float(largest))
