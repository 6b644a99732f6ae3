"""`attribute`: which passages of a prompt made a model give its answer."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attribution.answer import device_of, generated, tokenized
from regard.attribution.attribution import Attribution, How
from regard.attribution.decoder import check_decoder
from regard.attribution.passages import Passages
from regard.attribution.prompt import Messages, prompt_of
from regard.attribution.scoring import by_attention, by_effects, by_leaving_out
from regard.errors import check_choice, check_positive


def attribute(
    model: Any,
    tokenizer: Any,
    prompt: str | Messages,
    answer: str | None = None,
    passages: Passages = "paragraphs",
    *,
    how: How = "effects",
    each_token: bool = False,
    max_new_tokens: int = 64,
    progress: bool | None = None,
) -> Attribution:
    """Say which passages of a prompt made a model give its answer.

        found = regard.attribute(model, tokenizer, prompt, passages="lines")
        found.top(3)         # the passages that support the answer most
        found.verify(5)      # hides them, and prints what the answer truly loses

    By effects, the score of a passage is what looking at it adds to the log-probability of the
    answer, from one forward and one backward pass: the gradient with respect to the scores of
    attention, summed over all heads and all looks from outside of the passage.

    Args:
        model: a decoder of transformers.
        tokenizer: its tokenizer.
        prompt: a text, or the messages of a conversation.
        answer: the answer, as it goes on after the prompt; what the model generates by default.
        passages: "paragraphs", "lines", "sentences", the texts of the passages, or their spans in
            characters.
        how: "effects", "attention" (the mean weight that passages get from the tokens that predict
            the answer) or "leave-one-out" (one more forward pass for each passage).
        each_token: whether to score passages for each token of the answer too: one backward pass
            more for each, by effects.
        max_new_tokens: how long an answer to generate.
        progress: whether to show a progress bar; by default as `AttentionMatrix.summarize` does.

    Raises:
        TypeError: prompt, answer or passages have another type.
        ValueError: passages are not in the prompt, the answer is empty, has unknown tokens, can't
            go on after the prompt or has no probability, or the model is no decoder, calls no
            attention or is in training mode.
    """
    check_choice("how", how, ("effects", "attention", "leave-one-out"))
    check_positive(max_new_tokens=max_new_tokens)
    if getattr(model.config, "is_encoder_decoder", False):
        raise ValueError(f"{type(model).__name__} is an encoder–decoder: attribute needs a decoder")
    if model.training:
        raise ValueError(f"{type(model).__name__} is in training mode: call model.eval() first")
    given = prompt_of(tokenizer, prompt, passages)
    reply = (
        generated(model, given.ids, max_new_tokens)
        if answer is None
        else tokenized(tokenizer, given, answer)
    )
    tokens = torch.tensor([given.ids + reply], device=device_of(model))
    bypassed = check_decoder(model, tokens)
    spans = [passage.tokens for passage in given.passages]

    def hide(
        sets: Sequence[Sequence[int]],
    ) -> tuple[Float[Tensor, "sets answer"], Float[Tensor, "answer"]]:
        chosen = [[spans[number] for number in numbers] for numbers in sets]
        return by_leaving_out(model, tokens, len(reply), chosen, progress=progress)

    by_head = by_token = looks = None
    checkpointed = False
    if how == "leave-one-out":
        lost, each = hide([[number] for number in range(len(spans))])
        by_token, scores = lost.T, lost.sum(dim=1)
    else:
        if how == "effects":
            effects = by_effects(
                model, tokens, len(reply), spans, each_token=each_token, progress=progress
            )
            each, looks, checkpointed = effects.log_probs, effects.looks, effects.checkpointed
            by_head = effects.by_target.sum(dim=0)
            by_token = effects.by_target.sum(dim=(1, 2)) if each_token else None
        else:
            by_head, each = by_attention(model, tokens, len(reply), spans)
        scores = by_head.sum(dim=(0, 1))
    log_prob = float(each.sum())
    if not math.isfinite(log_prob):
        raise ValueError(f"the answer has a log-probability of {log_prob}: nothing can be scored")
    return Attribution(
        prompt=given.text,
        prompt_tokens=given.pieces,
        answer=tokenizer.decode(reply),
        answer_tokens=tokenizer.convert_ids_to_tokens(reply),
        passages=given.passages,
        scores=scores,
        how=how,
        log_prob=log_prob,
        by_head=by_head,
        by_token=by_token,
        looks=looks,
        checkpointed=checkpointed,
        bypassed=bypassed,
        _hide=hide,
    )
