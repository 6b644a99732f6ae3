"""`attribute`: score the passages of a prompt for an answer."""

import math
from functools import partial
from typing import Any

import torch

from regard.attribution.attribution import Attribution, How
from regard.attribution.decoder import check_decoder, generated
from regard.attribution.passages import Passages
from regard.attribution.prompt import Messages, prompt_of, tokenized
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
    """Score the passages of a prompt: how much each of them made a model give its answer.

        used = regard.attribute(model, tokenizer, prompt, passages="lines")
        used.top(3)         # the passages that support the answer most
        used.verify(5)      # hides them, and prints the true losses of the answer

    By effects, the score of a passage is how much attention to it raises the log-probability of the
    answer, from one forward and one backward pass: the gradient with respect to the scores of
    attention, summed over all heads and all pairs of a query outside of the passage and a key in
    it.

    Args:
        model: a decoder of transformers.
        tokenizer: its tokenizer.
        prompt: a text, or the messages of a conversation.
        answer: the text that follows the prompt; by default the model generates it.
        passages: "paragraphs", "lines", "sentences", the texts of the passages, or their spans in
            characters.
        how: "effects", "attention" (the mean weight of passages in rows of the tokens that predict
            the answer) or "leave-one-out" (one more forward pass for each passage).
        each_token: whether to score passages for each token of the answer too: one backward pass
            more for each, by effects.
        max_new_tokens: maximum length of a generated answer.
        progress: whether to show a progress bar; by default as `AttentionMatrix.summarize` does.

    Raises:
        TypeError: prompt, answer or passages have another type.
        ValueError: passages are not in the prompt, the answer is empty, has unknown tokens, can't
            go on after the prompt or has no probability, or the model is no decoder, calls no
            attention or is in training mode.
    """
    # 1. Arguments.
    check_choice("how", how, ("effects", "attention", "leave-one-out"))
    check_positive(max_new_tokens=max_new_tokens)
    if getattr(model.config, "is_encoder_decoder", False):
        raise ValueError(f"{type(model).__name__} is an encoder–decoder: attribute needs a decoder")
    if model.training:
        raise ValueError(f"{type(model).__name__} is in training mode: call model.eval() first")

    # 2. Tokens of the prompt and the answer.
    text = prompt_of(tokenizer, prompt, passages)
    if answer is None:
        answer_ids = generated(model, text.ids, max_new_tokens)
    else:
        answer_ids = tokenized(tokenizer, text, answer)
    tokens = torch.tensor([text.ids + answer_ids], device=next(model.parameters()).device)
    bypassed = check_decoder(model, tokens)
    spans = [passage.tokens for passage in text.passages]
    hide = partial(by_leaving_out, model, tokens, len(answer_ids), progress=progress)

    # 3. Scores.
    by_head = by_token = looks = None
    checkpointed = False
    if how == "leave-one-out":
        losses, log_probs = hide([[span] for span in spans])
        by_token, scores = losses.T, losses.sum(dim=1)
    elif how == "attention":
        by_head, log_probs = by_attention(model, tokens, len(answer_ids), spans)
        scores = by_head.sum(dim=(0, 1))
    else:
        effects = by_effects(
            model, tokens, len(answer_ids), spans, each_token=each_token, progress=progress
        )
        log_probs, looks, checkpointed = effects.log_probs, effects.looks, effects.checkpointed
        by_head = effects.by_target.sum(dim=0)
        by_token = effects.by_target.sum(dim=(1, 2)) if each_token else None
        scores = by_head.sum(dim=(0, 1))
    log_prob = float(log_probs.sum())
    if not math.isfinite(log_prob):
        raise ValueError(f"the answer has a log-probability of {log_prob}: nothing can be scored")

    return Attribution(
        prompt=text.text,
        prompt_tokens=text.pieces,
        answer=tokenizer.decode(answer_ids),
        answer_tokens=tokenizer.convert_ids_to_tokens(answer_ids),
        passages=text.passages,
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
