"""Scores of passages: by effects, by attention, or by leaving one out.

The effect of a passage is the sum of the effects of pairs with a query outside of it and a key in
it. In a causal matrix of effects, of a prompt with two passages:

           a a b b · ·
        a  ·                sum of ▒: effect of passage a
        a  · ·              sum of █: effect of passage b
        b  ▒ ▒ ·
        b  ▒ ▒ · ·
        ·  ▒ ▒ █ █ ·
        ·  ▒ ▒ █ █ · ·      one such matrix for each layer and head

`matrix.group_effects` computes the sums of all passages by one fused call for each layer, where the
pattern allows it; elsewhere `Between` takes a pass over tiles. Which keys and queries have the
effect is computed for the strongest heads only, while the gradients are there.

Cost: a forward and a backward pass of the model for the answer as a whole, or a forward pass and a
backward pass for each token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from regard.attribution.checkpointing import checkpointing, frozen
from regard.attribution.decoder import log_probs
from regard.calls.call import AttentionCall
from regard.capture import watch
from regard.internals import without_torch_function
from regard.interventions import knock_out
from regard.matrix import Between, EffectMatrix
from regard.matrix.derived import Effects
from regard.matrix.group_effects import effects_from_outside
from regard.patterns import pairs
from regard.progress import progressing

HEADS = 8
"""Number of heads of each passage with `HeadLooks`: those with the largest effects by size."""

QUERIES = 8
"""Number of queries that are kept of each head."""

_PAIRS = 2**22
"""Number of pairs that are computed at once."""


@dataclass(frozen=True, eq=False)
class HeadLooks:
    """The effects of one head on a passage: of queries outside of it, by key and by query.

    Attributes:
        layer: the layer, as in `Attribution.by_head`.
        head: the head.
        by_key: the effect of each token of the passage; their sum is that of the head.
        queries: the tokens that attend to the passage with the largest effects by size, the largest
            first; counted from the first token of the prompt.
        by_query: their effects.
    """

    layer: int
    head: int
    by_key: Float[Tensor, "tokens"]
    queries: list[int]
    by_query: Float[Tensor, "queries"]


@dataclass(frozen=True, eq=False)
class PassageEffects:
    """The effects of passages on the log-probability of an answer.

    Attributes:
        by_target: of each passage, through each head, on each target.
        log_probs: the log-probability of each token of the answer.
        looks: the strongest heads of each passage, by key and by query.
        checkpointed: whether some layers were computed again in the backward pass.
    """

    by_target: Float[Tensor, "targets layers heads passages"]
    log_probs: Float[Tensor, "answer"]
    looks: list[list[HeadLooks]]
    checkpointed: bool


def by_effects(
    model: nn.Module,
    tokens: Int[Tensor, "1 length"],
    num_answer: int,
    passages: Sequence[range],
    *,
    each_token: bool,
    progress: bool | None,
) -> PassageEffects:
    """Return the effect of each passage, through each head, on the log-probability of the answer.

    Args:
        model: a decoder of transformers.
        tokens: prompt and answer.
        num_answer: number of tokens of the answer.
        passages: the tokens of each passage.
        each_token: whether targets are the tokens of the answer, or the answer as a whole.
        progress: whether to show a progress bar.
    """
    between = _between(tokens.shape[1], passages, tokens.device)
    by_target: list[Tensor] = []
    with (
        frozen(model),
        checkpointing(model, tokens, once=not each_token or num_answer == 1) as checkpointed,
        torch.enable_grad(),
        watch(model, effects=True) as seen,
    ):
        # 1. Forward.
        token_log_probs = log_probs(model, tokens, num_answer)
        if not len(seen):
            raise ValueError(f"{type(model).__name__} has called no attention that watch can see")

        # 2. Backward from each target: its gradients alone give its effects; their sums are those
        #    of the answer as a whole.
        targets = list(token_log_probs) if each_token else [token_log_probs.sum()]
        gradients = [call.checked_gradient for call in seen]
        totals: list[Tensor | None] = [None] * len(seen)
        matrices: list[EffectMatrix | None] = []
        bar = progressing(targets, "tokens of the answer", len(targets), progress)
        for number, target in enumerate(bar):
            for gradient in gradients:
                gradient.total = None
            target.backward(retain_graph=number + 1 < len(targets))
            # Nothing of the model runs here, and asking each function costs time.
            with without_torch_function():
                matrices = [_effects(call) for call in seen]
                # Zeros where a layer has fewer heads than others.
                sums = [
                    _effects_from_outside(matrix, call.heads, passages, between)
                    for matrix, call in zip(matrices, seen, strict=True)
                ]
                by_target.append(pad_sequence(sums, batch_first=True))
                totals = [
                    _added(total, gradient.total)
                    for total, gradient in zip(totals, gradients, strict=True)
                ]
    seen.verify()

    # 3. The strongest heads for the answer as a whole.
    if len(targets) > 1:
        for gradient, total in zip(gradients, totals, strict=True):
            gradient.total = total
        matrices = [_effects(call) for call in seen]
    effects = torch.stack(by_target)
    looks = _strongest_heads(matrices, effects.sum(dim=0), passages)
    return PassageEffects(effects, token_log_probs.detach(), looks, checkpointed)


def by_attention(
    model: nn.Module,
    tokens: Int[Tensor, "1 length"],
    num_answer: int,
    passages: Sequence[range],
) -> tuple[Float[Tensor, "layers heads passages"], Float[Tensor, "answer"]]:
    """Return the mean weight of each passage in rows of the tokens that predict the answer.

    It is divided by the number of heads, so that it is the sum over heads. The log-probability of
    each token of the answer is returned too.
    """
    length = tokens.shape[1]
    queries = torch.zeros(1, 1, length, device=tokens.device)
    queries[..., length - num_answer - 1 : -1] = 1 / num_answer
    between = Between(queries, _members(length, passages, tokens.device))
    with torch.no_grad(), watch(model, keep=[between]) as seen:
        token_log_probs = log_probs(model, tokens, num_answer)
    seen.verify()
    by_layer = [call.results[0].weights[0, :, 0].cpu() for call in seen]
    weights = pad_sequence(by_layer, batch_first=True)
    return weights / sum(call.heads for call in seen), token_log_probs


def by_leaving_out(
    model: nn.Module,
    tokens: Int[Tensor, "1 length"],
    num_answer: int,
    hidden: Sequence[Sequence[range]],
    *,
    progress: bool | None = None,
) -> tuple[Float[Tensor, "sets answer"], Float[Tensor, "answer"]]:
    """Return the loss of each token of the answer in log-probability if passages are hidden.

    No token behind a hidden passage attends to it. Positions stay. The log-probability of each
    token with all passages is returned too.

    Args:
        model: a decoder of transformers.
        tokens: prompt and answer.
        num_answer: how many tokens the answer has.
        hidden: sets of passages, by their tokens; each set is hidden at once.
        progress: whether to show a progress bar.
    """
    losses: list[Tensor] = []
    with torch.no_grad():
        whole = log_probs(model, tokens, num_answer)
        for spans in progressing(hidden, "passages hidden", len(hidden), progress):
            masked = [pairs(queries=slice(span.stop, None), keys=span) for span in spans]
            with knock_out(model, reduce(or_, masked)):
                losses.append(whole - log_probs(model, tokens, num_answer))
    return torch.stack(losses).cpu(), whole


def _between(length: int, passages: Sequence[range], device: torch.device) -> Between:
    """Return the sums of effects over blocks: queries of each passage, or of none, × its keys."""
    members = _members(length, passages, device)
    others = ~members.any(dim=1, keepdim=True)
    return Between(torch.cat([members, others], dim=1), members)


def _members(length: int, passages: Sequence[range], device: torch.device) -> Tensor:
    """Return the tokens of each passage as a mask, [1, passages, length]."""
    members = torch.zeros(1, len(passages), length, dtype=torch.bool, device=device)
    for number, tokens in enumerate(passages):
        members[0, number, tokens.start : tokens.stop] = True
    return members


def _effects(call: AttentionCall) -> EffectMatrix | None:
    """Return the effects of a call, [heads, length, length]; None if it got no gradient."""
    return None if call.checked_gradient.total is None else call.effects[0]


def _effects_from_outside(
    effects: EffectMatrix | None,
    num_heads: int,
    passages: Sequence[range],
    between: Between,
) -> Float[Tensor, "heads passages"]:
    """Return the sum of the effects of queries outside of each passage on its keys."""
    if effects is None:
        return torch.zeros(num_heads, len(passages))
    source = effects.view.source
    assert isinstance(source, Effects)
    sums = effects_from_outside(source, passages)
    if sums is not None:
        return sums[0].cpu()
    (blocks,) = effects.summarize(between, progress=False)
    sums = blocks.weights.cpu()
    return sums.sum(dim=1) - sums[:, :-1].diagonal(dim1=1, dim2=2)


def _added(gradient: Tensor | None, new: Tensor | None) -> Tensor | None:
    if gradient is None or new is None:
        return gradient if new is None else new
    return gradient + new


def _strongest_heads(
    matrices: Sequence[EffectMatrix | None],
    by_head: Float[Tensor, "layers heads passages"],
    passages: Sequence[range],
) -> list[list[HeadLooks]]:
    """Return the strongest heads of each passage by key and by query, the strongest first.

    Args:
        matrices: the effects of each layer, [heads, length, length]; those whose sums are known, so
            that the log-sum-exp and g·o of each row are not computed again.
        by_head: the effect of each passage through each head.
        passages: the tokens of each passage.
    """
    num_heads = by_head.shape[1]
    strongest: list[list[HeadLooks]] = []
    for tokens, effects in zip(passages, by_head.flatten(0, 1).T, strict=True):
        sizes, places = effects.abs().topk(min(HEADS, len(effects)))
        heads = [divmod(place, num_heads) for place in places[sizes > 0].tolist()]
        strongest.append([_one_head(matrices[layer], layer, head, tokens) for layer, head in heads])
    return strongest


def _one_head(matrix: EffectMatrix | None, layer: int, head: int, tokens: range) -> HeadLooks:
    assert matrix is not None, "a head without a gradient has no effects"
    # A decoder: no query attends to a passage before it is there.
    effects = matrix[head, tokens.stop :, tokens.start : tokens.stop]
    num_queries, num_keys = effects.shape
    by_key = torch.zeros(num_keys, device=effects.device)
    by_query = [torch.zeros(0, device=effects.device)]
    step = max(1, _PAIRS // num_keys)
    for start in range(0, num_queries, step):
        rows = effects[start : start + step].dense()
        by_key = by_key + rows.sum(dim=0)
        by_query.append(rows.sum(dim=1))

    query_effects = torch.cat(by_query)
    strongest = query_effects.abs().topk(min(QUERIES, num_queries)).indices
    queries = (tokens.stop + strongest).tolist()
    return HeadLooks(layer, head, by_key.cpu(), queries, query_effects[strongest].cpu())
