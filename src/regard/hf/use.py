"""Switching a model of transformers over to `attend`."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from torch import nn

from regard.hf.attention import LAYER_PATTERN, attention
from regard.hf.masks import mask
from regard.patterns import Pattern

NAME = "regard"

CROSS = ("cross", "encdec", "encoder_attn")
"""What the names of modules that look at another sequence have in them."""

Model = TypeVar("Model", bound=nn.Module)


def register() -> None:
    """Make "regard" a choice of `attn_implementation` in transformers, for models to come.

    A model that computes its attention by itself refuses it when it is loaded.

    Raises:
        ImportError: transformers is not installed.
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
    except ImportError as error:
        raise ImportError('regard.hf needs transformers: pip install "regard[hf]"') from error
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)
    # transformers asks this of every model whether it can have the attention that was chosen, and
    # lets all have one that was registered.
    asked = PreTrainedModel.get_correct_attn_implementation
    if getattr(asked, "__module__", None) != __name__:
        PreTrainedModel.get_correct_attn_implementation = _refusing(asked)


def _refusing(asked: Callable[..., str]) -> Callable[..., str]:
    """Return what models are asked, and let those refuse that compute attention by themselves."""

    def get_correct_attn_implementation(
        self: Any, requested_attention: str | None, *more: Any, **options: Any
    ) -> str:
        if requested_attention == NAME and not _can_choose(self):
            raise ValueError(_by_itself(self))
        return asked(self, requested_attention, *more, **options)

    return get_correct_attn_implementation


def _can_choose(model: Any) -> bool:
    """Say whether a model asks transformers for its attention.

    Versions before 5.13 say so of FSMT and OpenAI GPT, whose class is called just `Attention`, and
    which go on with their own: so the file of a model is read here as later versions read it.
    """
    if not model._can_set_attn_implementation():
        return False
    source = inspect.getsource(sys.modules[type(model).__module__])
    if re.search(r"^class \w*Attention\w*\(nn\.Module\):", source, re.MULTILINE):
        return "ALL_ATTENTION_FUNCTIONS.get_interface(" in source
    return True


def _by_itself(model: nn.Module) -> str:
    return f"{type(model).__name__} does not let its attention be chosen: it computes it by itself"


def use(model: Model, *, pattern: Pattern | Mapping[int, Pattern] | None = None) -> Model:
    """Let a model of transformers run on `attend`, with a pattern for its layers if one is given.

    Args:
        model: any model of transformers that lets its attention be chosen.
        pattern: who may look at whom in self-attention, of those who may in the model itself: a
            window put on a model that had none, say. One pattern for all layers, or one for each
            layer named by its number; the other layers then have none, also if they had before.

    Returns:
        The model.

    Raises:
        ImportError: transformers is not installed.
        ValueError: the model's attention can't be chosen, or there is no layer of that number.
    """
    register()
    choose = getattr(model, "set_attn_implementation", None)
    if choose is None:
        raise ValueError(f"model must be one of transformers', got {type(model).__name__}")
    choose(NAME)
    config: Any = model.config
    if config._attn_implementation != NAME:
        raise ValueError(_by_itself(model))
    _set_patterns(model, pattern)
    return model


def _set_patterns(model: nn.Module, pattern: Pattern | Mapping[int, Pattern] | None) -> None:
    layers = {module: getattr(module, "layer_idx", None) for module in _self_attention(model)}
    if isinstance(pattern, Mapping):
        known = {number for number in layers.values() if number is not None}
        unknown = sorted(set(pattern) - known)
        if unknown:
            there = f"{min(known)} to {max(known)}" if known else "not numbered"
            raise ValueError(
                f"pattern names layers {unknown}, but those of {type(model).__name__} are {there}"
            )
    for module, number in layers.items():
        chosen = pattern
        if isinstance(pattern, Mapping):
            chosen = None if number is None else pattern.get(number)
        setattr(module, LAYER_PATTERN, chosen)


def _self_attention(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules that may call attention on one sequence, and some that never do."""
    for name, module in model.named_modules():
        looks = hasattr(module, "layer_idx") or "Attention" in type(module).__name__
        if looks and not any(part in name.lower() for part in CROSS):
            yield module
