"""The answer of a model, and its log-probability."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.printable import check_well_formed


def generated(model: Any, ids: Sequence[int], max_new_tokens: int) -> list[int]:
    """Return what a model answers, greedily, without the token that ends it.

    Raises:
        ValueError: the answer is empty.
    """
    tokens = torch.tensor([ids], device=device_of(model))
    with torch.no_grad():
        found = model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=max_new_tokens,
            do_sample=False,
        )
    ends = model.generation_config.eos_token_id
    ends = set(ends) if isinstance(ends, list) else {ends}
    answer = found[0, len(ids) :].tolist()
    while answer and answer[-1] in ends:
        answer.pop()
    if not answer:
        raise ValueError("the model answers nothing: pass answer=")
    return answer


def tokenized(tokenizer: Any, answer: str) -> list[int]:
    """Return the tokens of an answer.

    Raises:
        TypeError: the answer is not a text.
        ValueError: it has no tokens, or the tokenizer does not know some of it.
    """
    if not isinstance(answer, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"answer must be a text, got {answer!r}")
    check_well_formed("answer", answer)
    tokens: list[int] = tokenizer(answer, add_special_tokens=False)["input_ids"]
    if not tokens:
        raise ValueError(f"the answer has no tokens, got {answer!r}")
    unknown = tokenizer.unk_token
    # Some tokenizers name an ordinary token as the unknown one, which an answer may spell out.
    if unknown and tokens.count(tokenizer.unk_token_id) > answer.count(unknown):
        raise ValueError(
            f"answer must be made of known tokens, got {answer!r}, which is tokenized as "
            f"{tokenizer.convert_ids_to_tokens(tokens)}"
        )
    return tokens


def check_causal(model: nn.Module, tokens: Int[Tensor, "1 length"]) -> None:
    """Raise ValueError if what a model says of the first token depends on the second."""
    with torch.no_grad():
        alone, before = (model(tokens[:, :size]).logits[0, 0].float() for size in (1, 2))
    if not torch.allclose(alone, before, rtol=1e-2, atol=1e-2 * float(alone.abs().max())):
        raise ValueError(f"{type(model).__name__} attends to later tokens: a decoder is needed")


def log_probs(
    model: nn.Module, tokens: Int[Tensor, "1 length"], num_answer: int
) -> Float[Tensor, "answer"]:
    """Return the log-probability of each of the last tokens, given all before it."""
    options: dict[str, Any] = {}
    if "logits_to_keep" in inspect.signature(model.forward).parameters:
        options["logits_to_keep"] = num_answer + 1
    logits = model(tokens, use_cache=False, **options).logits[0, -num_answer - 1 : -1]
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return logits.log_softmax(dim=-1).gather(1, tokens[0, -num_answer:, None])[:, 0]


def device_of(model: nn.Module) -> torch.device:
    """Return the device of a model."""
    return next(model.parameters()).device
