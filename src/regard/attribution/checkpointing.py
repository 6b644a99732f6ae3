"""Bound the memory of a backward pass through a decoder.

A backward pass needs activations of every layer: for long prompts, more than a machine has. The
bytes of a token are counted on a few tokens, with hooks on saved tensors. If all tokens need more
than the bound, the first layers are checkpointed: they drop their activations, and are computed
again in the backward pass.

    layers       0  1  2  3  4  5  6  7        needed: twice the bound
    forward      ·  ·  ·  ·  ■  ■  ■  ■        ■ kept, · dropped
    backward     ■  ■  ■  ■  ←  ←  ←  ←        the last layers are free again by then

Cost: the forward pass of the dropped layers once more, without their attention if there is one
backward pass only: the output of its kernel is kept anyway.
"""

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from regard.capture import watch

_KEPT_BYTES = 2**31
"""So many bytes of activations are kept for the backward pass, and others computed again."""

_MOST_PER_LAYER = 36
"""A layer keeps at most so many numbers of the hidden size of a token: a bound that spares the
count on short prompts."""

_NUM_COUNTED = 8
"""So many tokens are run to count the bytes of a token."""

_ATTENTION = [
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
]
"""Kernels whose outputs are kept anyway, so that they don't run again."""


@contextmanager
def checkpointing(model: Any, tokens: Tensor, *, once: bool) -> Generator[bool]:
    """Compute the first layers again in the backward pass, if all would take too much memory.

    It yields whether there are any. transformers does so in training only, with dropout.

    Args:
        model: a decoder of transformers.
        tokens: the tokens of the backward pass.
        once: whether there is just one backward pass: then kernels of attention don't run again.
    """
    # 1. The bytes that are needed: a bound first, then a count.
    layers = [layer for layer in model.modules() if hasattr(type(layer), "gradient_checkpointing")]
    config = model.config.get_text_config()
    size = getattr(config, "hidden_size", 0) * getattr(config, "num_hidden_layers", 0)
    needed = tokens.numel() * size * _MOST_PER_LAYER * 4
    if layers and needed > _KEPT_BYTES:
        needed = tokens.numel() * bytes_per_token(model, tokens)
    if needed <= _KEPT_BYTES or not layers:
        yield False
        return

    # 2. The layers that fit are the last ones, whose activations are free when the first are
    #    computed again.
    layers = layers[: len(layers) - len(layers) * _KEPT_BYTES // needed]
    before = [vars(layer).get("forward") for layer in layers]
    options: dict[str, Any] = {"use_reentrant": False}
    if once:
        options["context_fn"] = partial(create_selective_checkpoint_contexts, _ATTENTION, True)
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, **options)
    try:
        yield True
    finally:
        for layer, forward in zip(layers, before, strict=True):
            del layer.forward
            if forward is not None:
                layer.forward = forward


def bytes_per_token(model: nn.Module, tokens: Int[Tensor, "1 length"]) -> int:
    """Return how many bytes of a token the backward pass needs, counted on a few tokens."""
    counted = tokens[:, :_NUM_COUNTED]
    parameters = chain(model.parameters(), model.buffers())
    # There anyway.
    own = {tensor.untyped_storage().data_ptr() for tensor in parameters}
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
        output = model(counted, use_cache=False)
    del output
    return sum(kept.values()) // counted.shape[1]


@contextmanager
def frozen(model: nn.Module) -> Generator[None]:
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
