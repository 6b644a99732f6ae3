"""The answer of a model, and its log-probability."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attribution.prompt import Prompt
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
            return_dict_in_generate=False,
        )
    ends = model.generation_config.eos_token_id
    ends = set(ends) if isinstance(ends, list) else {ends}
    answer = found[0, len(ids) :].tolist()
    while answer and answer[-1] in ends:
        answer.pop()
    if not answer:
        raise ValueError("the model answers nothing: pass answer=")
    return answer


def tokenized(tokenizer: Any, prompt: Prompt, answer: str) -> list[int]:
    """Return the tokens of an answer, as it goes on after a prompt.

    Raises:
        TypeError: the answer is not a text.
        ValueError: it has no tokens, the tokenizer does not know some of it, or it can't go on
            after the tokens of the prompt.
    """
    if not isinstance(answer, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"answer must be a text, got {answer!r}")
    check_well_formed("answer", answer)
    tokens = _going_on(tokenizer, prompt, answer)
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


def _going_on(tokenizer: Any, prompt: Prompt, answer: str) -> list[int]:
    """Return the tokens of an answer after those of a prompt.

    On its own, an answer would begin a text, to which some tokenizers add a space.
    """
    text = prompt.text + answer
    together: list[int] = tokenizer(text, add_special_tokens=prompt.special)["input_ids"]
    if together[: len(prompt.ids)] == prompt.ids:
        return together[len(prompt.ids) :]
    # The last token of the prompt would be joined with the first of the answer.
    alone: list[int] = tokenizer(answer, add_special_tokens=False)["input_ids"]
    spelled, wanted = (
        tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        for ids in (prompt.ids + alone, together)
    )
    if wanted == text != spelled:
        raise ValueError(
            f"the answer {answer[:60]!r} can't go on after the last token of the prompt, "
            f"{tokenizer.convert_ids_to_tokens(prompt.ids[-1])!r}: move a space from the end of "
            "the prompt to the beginning of the answer"
        )
    return alone


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


def device_of(model: nn.Module) -> torch.device:
    """Return the device of a model."""
    return next(model.parameters()).device
