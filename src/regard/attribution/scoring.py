"""Scores of passages: by effects, by attention, or by leaving one out."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain
from operator import or_
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from regard.attribution.answer import log_probs
from regard.attribution.looks import HeadLooks, strongest_looks
from regard.calls.call import AttentionCall
from regard.capture import watch
from regard.internals import without_torch_function
from regard.interventions import knock_out
from regard.matrix import Between, EffectMatrix
from regard.matrix.derived import Effects
from regard.matrix.group_effects import effects_from_outside
from regard.patterns import pairs
from regard.progress import progressing

_KEPT = 2**31
"""So many bytes of activations are kept for the backward pass, and others computed again."""

_MOST = 36
"""So many numbers of the hidden size, or fewer, a layer keeps of a token for its backward pass."""

_FEW = 8
"""So many tokens are run to see how many it keeps."""

_ATTENTION = [
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
]
"""Kernels whose outputs are kept anyway, so that they don't run again."""


@dataclass(frozen=True, eq=False)
class PassageEffects:
    """The effects of passages on the log-probability of an answer.

    Attributes:
        by_target: of each passage, through each head, on each target.
        log_probs: the log-probability of each token of the answer.
        looks: how the strongest heads of each passage look at it.
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

    The effect of a passage is that of all looks at it from outside. For the answer as a whole it
    takes one forward and one backward pass; for each of its tokens, one more backward pass.

    Args:
        model: a decoder of transformers.
        tokens: prompt and answer.
        num_answer: how many tokens the answer has.
        passages: the tokens of each passage.
        each_token: whether targets are the tokens of the answer, or the answer as a whole.
        progress: whether to show a progress bar.
    """
    between = _between(tokens.shape[1], passages, tokens.device)
    found: list[Tensor] = []
    with (
        _frozen(model),
        _checkpointing(model, tokens, once=not each_token or num_answer == 1) as checkpointed,
        torch.enable_grad(),
        watch(model, effects=True) as seen,
    ):
        each = log_probs(model, tokens, num_answer)
        if not len(seen):
            raise ValueError(f"{type(model).__name__} has called no attention that watch can see")
        targets = list(each) if each_token else [each.sum()]
        whole: list[Tensor | None] = [None] * len(seen)
        matrices: list[EffectMatrix | None] = []
        bar = progressing(targets, "tokens of the answer", len(targets), progress)
        for number, target in enumerate(bar):
            for call in seen:
                call.checked_gradient.total = None
            target.backward(retain_graph=number + 1 < len(targets))
            # Nothing of the model runs here, and asking each function costs time.
            with without_torch_function():
                matrices = [_effects(call) for call in seen]
                sums = [
                    _outside(one, call, passages, between)
                    for one, call in zip(matrices, seen, strict=True)
                ]
                found.append(_by_layer(sums))
                whole = [_added(before, call) for before, call in zip(whole, seen, strict=True)]
    seen.verify()
    if len(targets) > 1:
        for call, gradient in zip(seen, whole, strict=True):
            call.checked_gradient.total = gradient
        matrices = [_effects(call) for call in seen]
    by_target = torch.stack(found)
    looks = strongest_looks(matrices, by_target.sum(dim=0), passages)
    return PassageEffects(by_target, each.detach(), looks, checkpointed)


def by_attention(
    model: nn.Module,
    tokens: Int[Tensor, "1 length"],
    num_answer: int,
    passages: Sequence[range],
) -> tuple[Float[Tensor, "layers heads passages"], Float[Tensor, "answer"]]:
    """Return the mean weight that each passage gets from the tokens that predict the answer.

    It is divided among the heads, so that it is their sum. The log-probability of each token of the
    answer is returned too.
    """
    length = tokens.shape[1]
    queries = torch.zeros(1, 1, length, device=tokens.device)
    queries[..., length - num_answer - 1 : -1] = 1 / num_answer
    between = Between(queries, _members(length, passages, tokens.device))
    with torch.no_grad(), watch(model, keep=[between]) as seen:
        each = log_probs(model, tokens, num_answer)
    seen.verify()
    weights = _by_layer([call.results[0].weights[0, :, 0].cpu() for call in seen])
    return weights / sum(call.heads for call in seen), each


def by_leaving_out(
    model: nn.Module,
    tokens: Int[Tensor, "1 length"],
    num_answer: int,
    hidden: Sequence[Sequence[range]],
    *,
    progress: bool | None = None,
) -> tuple[Float[Tensor, "sets answer"], Float[Tensor, "answer"]]:
    """Return what each token of the answer loses in log-probability if passages are hidden.

    No token behind a hidden passage attends to it. Positions stay as they are. The log-probability
    of each token with all passages is returned too.

    Args:
        model: a decoder of transformers.
        tokens: prompt and answer.
        num_answer: how many tokens the answer has.
        hidden: sets of passages, by their tokens; each set is hidden at once.
        progress: whether to show a progress bar.
    """
    found: list[Tensor] = []
    with torch.no_grad():
        whole = log_probs(model, tokens, num_answer)
        for some in progressing(hidden, "passages hidden", len(hidden), progress):
            looks = [pairs(queries=slice(one.stop, None), keys=one) for one in some]
            with knock_out(model, reduce(or_, looks)):
                found.append(whole - log_probs(model, tokens, num_answer))
    return torch.stack(found).cpu(), whole


def _between(length: int, passages: Sequence[range], device: torch.device) -> Between:
    """Return the reduction that adds up effects from each passage, and from all else, on each."""
    members = _members(length, passages, device)
    others = ~members.any(dim=1, keepdim=True)
    return Between(torch.cat([members, others], dim=1), members)


def _members(length: int, passages: Sequence[range], device: torch.device) -> Tensor:
    """Return which tokens belong to each passage, [1, passages, length]."""
    members = torch.zeros(1, len(passages), length, dtype=torch.bool, device=device)
    for number, tokens in enumerate(passages):
        members[0, number, tokens.start : tokens.stop] = True
    return members


def _by_layer(
    rows: list[Float[Tensor, "some_heads passages"]],
) -> Float[Tensor, "layers heads passages"]:
    """Return what each layer has, with zeros where one has fewer heads than others."""
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def _effects(call: AttentionCall) -> EffectMatrix | None:
    """Return the effects of a call, [heads, length, length]; None if no gradient has come."""
    return None if call.checked_gradient.total is None else call.effects[0]


def _outside(
    effects: EffectMatrix | None,
    call: AttentionCall,
    passages: Sequence[range],
    between: Between,
) -> Float[Tensor, "heads passages"]:
    """Return the effects of looks at each passage from outside of it."""
    if effects is None:
        return torch.zeros(call.heads, len(passages))
    source = effects.view.source
    assert isinstance(source, Effects)
    sums = effects_from_outside(source, passages)
    if sums is not None:
        return sums[0].cpu()
    (found,) = effects.summarize(between, progress=False)
    sums = found.weights.cpu()
    return sums.sum(dim=1) - sums[:, :-1].diagonal(dim1=1, dim2=2)


def _added(gradient: Tensor | None, call: AttentionCall) -> Tensor | None:
    """Return a gradient with that which has come to a call since."""
    new = call.checked_gradient.total
    if gradient is None or new is None:
        return gradient if new is None else new
    return gradient + new


@contextmanager
def _frozen(model: nn.Module) -> Generator[None]:
    """Keep gradients of parameters from being computed."""
    # Those made in inference mode can't be told to learn again.
    learning = [
        parameter
        for parameter in model.parameters()
        if parameter.requires_grad and not parameter.is_inference()
    ]
    for parameter in learning:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)


def _bytes_of_a_token(model: nn.Module, tokens: Int[Tensor, "1 length"]) -> int:
    """Return how many bytes the backward pass needs of what the layers make of a token.

    Counted on a few of them. Parameters and buffers are there anyway.
    """
    few = tokens[:, :_FEW]
    own = {one.untyped_storage().data_ptr() for one in chain(model.parameters(), model.buffers())}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        memory = tensor.untyped_storage()
        if memory.data_ptr() not in own:
            kept[memory.data_ptr()] = memory.nbytes()
        return tensor

    with (
        torch.enable_grad(),
        watch(model, effects=True),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        # While the output is there, so is all that was kept.
        output = model(few, use_cache=False)
    del output
    return sum(kept.values()) // few.shape[1]


@contextmanager
def _checkpointing(model: Any, tokens: Tensor, *, once: bool) -> Generator[bool]:
    """Compute the first layers again in the backward pass, if all would take too much memory.

    It yields whether there are any. transformers does so in training only, where layers drop
    numbers. If there is just one backward pass, kernels of attention don't run again in it.
    """
    layers = [one for one in model.modules() if hasattr(type(one), "gradient_checkpointing")]
    config = model.config.get_text_config()
    size = getattr(config, "hidden_size", 0) * getattr(config, "num_hidden_layers", 0)
    needed = tokens.numel() * size * _MOST * 4
    if layers and needed > _KEPT:
        needed = tokens.numel() * _bytes_of_a_token(model, tokens)
    if needed <= _KEPT or not layers:
        yield False
        return
    # The last ones are free again when the first are computed.
    layers = layers[: len(layers) - len(layers) * _KEPT // needed]
    before = [vars(layer).get("forward") for layer in layers]
    again: dict[str, Any] = {"use_reentrant": False}
    if once:
        again["context_fn"] = partial(create_selective_checkpoint_contexts, _ATTENTION, True)
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, **again)
    try:
        yield True
    finally:
        for layer, forward in zip(layers, before, strict=True):
            del layer.forward
            if forward is not None:
                layer.forward = forward
