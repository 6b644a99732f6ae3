"""A decoder: its answer, the log-probability of an answer, and whether it is one."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.interventions import knock_out
from regard.patterns import pairs

_NUM_PROBED = 8
"""So many tokens are enough to see whether a token reaches others."""


def check_decoder(model: Any, tokens: Int[Tensor, "1 length"]) -> bool | None:
    """Raise ValueError if a token reaches earlier ones; return whether one goes past attention.

    The first few tokens run three times, as a batch:

        plain               a b c d e f g h
        other end           a b c d e f g ·    if a … g notice, the model is no decoder
        other beginning     · b c d e f g h    if b … h notice, tokens go past attention

    No other token attends to the first one, so in the last row only layers of another kind, such as
    state-space layers and convolutions, can carry it to later tokens.

    Args:
        model: the model.
        tokens: known tokens, such as a prompt.

    Returns:
        Whether tokens reach later ones past attention; None if the first one could not be kept from
        attention, so that this can't be told.
    """
    # 1. The three rows.
    rows = tokens[:, :_NUM_PROBED].repeat(3, 1)
    num_tokens = model.get_input_embeddings().weight.shape[0]
    rows[1, -1], rows[2, 0] = (rows[0, [-1, 0]] + 1) % num_tokens
    hidden = pairs(queries=slice(1, None), keys=[0])
    with torch.no_grad():
        try:
            with knock_out(model, hidden):
                output, is_hidden = model(rows), True
        except (ValueError, RuntimeError):
            output, is_hidden = model(rows), False

    # 2. Their logits.
    name = type(model).__name__
    if not hasattr(output, "logits"):
        raise ValueError(f"{name} returns no logits: use AutoModelForCausalLM")
    logits = output.logits.float()
    if bool(logits.isnan().any()):
        raise ValueError(f"{name} returns NaN")
    plain, other_end, other_beginning = logits

    # 3. The tokens that notice. Half precision rounds each row of a batch in its own way.
    precision = 8 * torch.finfo(output.logits.dtype).eps
    if not _is_close(plain[:-1], other_end[:-1], within=max(1e-2, precision)):
        raise ValueError(f"{name} attends to later tokens: a decoder is needed")
    if not is_hidden:
        return None
    return not _is_close(plain[1:], other_beginning[1:], within=max(1e-3, precision))


def _is_close(logits: Tensor, expected: Tensor, *, within: float) -> bool:
    """Return whether logits differ by no more than rounding: relative to the largest of them."""
    largest = logits.masked_fill(~logits.isfinite(), 0.0).abs().amax() if logits.numel() else 0.0
    return torch.allclose(logits, expected, rtol=within, atol=within * float(largest))


def generated(model: Any, ids: Sequence[int], max_new_tokens: int) -> list[int]:
    """Return the greedy answer of a model, without the token that ends it.

    Raises:
        ValueError: the answer is empty.
    """
    tokens = torch.tensor([ids], device=next(model.parameters()).device)
    with torch.no_grad():
        output = model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            return_dict_in_generate=False,
        )
    answer = output[0, len(ids) :].tolist()

    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    while answer and answer[-1] in ends:
        answer.pop()
    if not answer:
        raise ValueError("the model answers nothing: pass answer=")
    return answer


def log_probs(
    model: nn.Module, tokens: Int[Tensor, "1 length"], num_answer: int
) -> Float[Tensor, "answer"]:
    """Return the log-probability of each of the last tokens, given all before it.

    Raises:
        ValueError: a token or a position has no embedding.
    """
    options: dict[str, Any] = {}
    if "logits_to_keep" in inspect.signature(model.forward).parameters:
        options["logits_to_keep"] = num_answer + 1
    try:
        output = model(tokens, use_cache=False, **options)
    except IndexError as error:
        raise ValueError(
            f"{type(model).__name__} has no embedding for some of these {tokens.shape[1]:,} "
            "tokens, or for their positions"
        ) from error
    logits = output.logits[0, -num_answer - 1 : -1]
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return logits.log_softmax(dim=-1).gather(1, tokens[0, -num_answer:, None])[:, 0]
