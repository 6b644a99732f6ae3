"""Comparison of one of our models with the model of transformers that it was read from."""

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

_NUM_TOKENS = 11

_STRIDE = 7919
"""A prime number, so that tokens differ unless the vocabulary is tiny."""

_MAX_ROUNDINGS_HALF = 4.0
"""How many times the rounding of its numbers a vector may be off, on average over the tokens.

SmolLM2, MiniLM and small models with large weights are off by up to 1, on a CPU. In half precision,
SiLU for GELU is 5.
"""

_MAX_ROUNDINGS_SINGLE = 32.0
"""The same in float32, where sums have more terms and fewer roundings; there is room for more."""


def example_inputs(arguments: Mapping[str, Any], like: Tensor) -> Tensor:
    """Return a few tokens or an image for a model with these arguments.

    They are computed, not drawn: loading a model must not change what is drawn later.

    Args:
        arguments: the arguments of our class.
        like: a weight, whose device and dtype are taken.
    """
    if "image_size" in arguments:
        size = arguments["image_size"]
        shape = (1, arguments["num_channels"], size, size)
        pixels = torch.arange(math.prod(shape), dtype=torch.float64).sin().view(shape)
        return pixels.to(like.device, like.dtype)
    length = min(_NUM_TOKENS, arguments.get("num_positions", _NUM_TOKENS))
    tokens = torch.arange(1, length + 1) * _STRIDE % arguments["vocabulary_size"]
    return tokens[None].to(like.device)


def check_same_outputs(model: nn.Module, original: nn.Module, inputs: Tensor) -> None:
    """Raise ValueError unless our model computes the same as the original.

    Weights and the config don't say all: settings of modules can be edited (`scaling`, `is_causal`,
    an activation, an epsilon), `forward` can be replaced, and hooks can be added. So both models
    run once. Each block of ours gets the state that the original had there, so that the error of
    one block is not hidden or exceeded by those before it.

    Args:
        model: our model; its `layers` are blocks. It must be in evaluation mode.
        original: the model of transformers. It runs in evaluation mode, and is left as it was.
        inputs: tokens or images for both. Nothing is compared on the device "meta".
    """
    if inputs.device.type == "meta":
        return

    # 1. The states of the original.
    with torch.no_grad(), _evaluating(original):
        output: Any = original(inputs, output_hidden_states=True, return_dict=True)
    states = output.hidden_states
    last = output.logits if hasattr(output, "logits") else output.last_hidden_state

    # 2. Compare the input of each block of ours, and continue with the original one.
    blocks: Any = model.layers

    def continue_with_original(number: int) -> Any:
        def hook(_block: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            before = states[number - 1] if number else torch.zeros_like(states[0])
            place = f"block {number - 1}" if number else "the embedding"
            _compare(place, arguments[0], states[number], before)
            return states[number], *arguments[1:]

        return hook

    hooks = [
        block.register_forward_pre_hook(continue_with_original(number))
        for number, block in enumerate(blocks)
    ]
    try:
        with torch.no_grad():
            _compare("the output", model(inputs), last, torch.zeros_like(last))
    finally:
        for hook in hooks:
            hook.remove()


def _compare(place: str, actual: Tensor, expected: Tensor, before: Tensor) -> None:
    """Raise ValueError if vectors differ by more than rounding.

    A block may be off by the rounding of what it adds and of the sum.

    Args:
        place: the part of the model.
        actual: of our model, [..., tokens, dim].
        expected: of the original.
        before: the input, to which the part has added.
    """
    is_half = expected.element_size() == 2
    allowed = (_MAX_ROUNDINGS_HALF if is_half else _MAX_ROUNDINGS_SINGLE) * _rounding(expected)

    actual, expected, before = actual.double(), expected.double(), before.double()
    size = (expected - before).norm(dim=-1) + expected.norm(dim=-1)
    error = (actual - expected).norm(dim=-1)
    off = float(torch.where(error == 0.0, 0.0, error / size).mean())
    if not off <= allowed:
        raise ValueError(
            "the model must compute what its config and weights say: "
            f"{place} is off by {off:.2g} of its size, and rounding is {allowed:.2g}. Were "
            "settings of its modules changed, or hooks added? They can't be taken over: change the "
            "config and load the model again"
        )


def _rounding(numbers: Tensor) -> float:
    """Return the relative rounding error of the operations that numbers came from."""
    dtype = numbers.dtype
    if dtype == torch.float64:
        # Models compute norms and softmaxes in float32.
        dtype = torch.float32
    elif dtype == torch.float32 and numbers.is_cuda:
        # TF32 has as many digits as float16.
        dtype = torch.float16
    return torch.finfo(dtype).eps


@contextmanager
def _evaluating(model: nn.Module) -> Generator[None]:
    """Run a model in evaluation mode, and restore the mode of each module."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
