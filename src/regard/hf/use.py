"""Run models of transformers on `attend`."""

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
"""Parts of the names of cross-attention modules."""

Model = TypeVar("Model", bound=nn.Module)


def register() -> None:
    """Register "regard" as an `attn_implementation` of transformers.

    Models with their own attention code refuse it when they are loaded.

    Raises:
        ImportError: transformers is not installed.
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
    except ImportError as error:
        raise ImportError('regard.hf needs transformers: pip install "regard[hf]"') from error
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)
    # transformers calls this to validate `attn_implementation`, and accepts any registered name.
    validate = PreTrainedModel.get_correct_attn_implementation
    if getattr(validate, "__module__", None) != __name__:
        PreTrainedModel.get_correct_attn_implementation = _refusing(validate)


def _refusing(validate: Callable[..., str]) -> Callable[..., str]:
    """Wrap the validation so that it raises for models with their own attention code."""

    def get_correct_attn_implementation(
        self: Any, requested_attention: str | None, *arguments: Any, **options: Any
    ) -> str:
        if requested_attention == NAME and not _can_choose(self):
            raise _own_attention_error(self)
        return validate(self, requested_attention, *arguments, **options)

    return get_correct_attn_implementation


def _can_choose(model: Any) -> bool:
    """Return whether a model uses transformers' attention interface.

    Versions before 5.13 wrongly say so of FSMT and OpenAI GPT, whose class is called `Attention`.
    So this searches the model's source, as later versions do.
    """
    if not model._can_set_attn_implementation():
        return False
    source = inspect.getsource(sys.modules[type(model).__module__])
    if re.search(r"^class \w*Attention\w*\(nn\.Module\):", source, re.MULTILINE):
        return "ALL_ATTENTION_FUNCTIONS.get_interface(" in source
    # Wrapped models of timm have attention of their own.
    return not re.search(r"^\s*import timm$", source, re.MULTILINE)


def _own_attention_error(model: nn.Module) -> ValueError:
    return ValueError(f"{type(model).__name__} has its own attention code, which can't be replaced")


def use(model: Model, *, pattern: Pattern | Mapping[int, Pattern] | None = None) -> Model:
    """Switch a model of transformers to `attend`, optionally with patterns; return the model.

    Args:
        model: any model of transformers that uses its attention interface.
        pattern: combined with the model's own masks in self-attention by `&`. One pattern for all
            layers, or a mapping by layer number; layers that it leaves out have none.

    Raises:
        ImportError: transformers is not installed.
        ValueError: the model, or a model in it, has its own attention code; or it has no layer of
            that number.
    """
    register()
    choose = getattr(model, "set_attn_implementation", None)
    if choose is None:
        raise ValueError(f"model must be a transformers model, got {type(model).__name__}")
    for part in model.modules():
        # transformers leaves such a part as it is, with a warning.
        if hasattr(part, "set_attn_implementation") and not _can_choose(part):
            raise _own_attention_error(part)
    choose(NAME)
    _set_patterns(model, pattern)
    return model


def _set_patterns(model: nn.Module, pattern: Pattern | Mapping[int, Pattern] | None) -> None:
    layers = {module: getattr(module, "layer_idx", None) for module in _self_attention(model)}
    if isinstance(pattern, Mapping):
        known = {number for number in layers.values() if number is not None}
        unknown = sorted(set(pattern) - known)
        if unknown:
            numbers = f"{min(known)} to {max(known)}" if known else "not numbered"
            raise ValueError(
                f"pattern names layers {unknown}, but those of {type(model).__name__} are {numbers}"
            )
    for module, number in layers.items():
        chosen = pattern
        if isinstance(pattern, Mapping):
            chosen = None if number is None else pattern.get(number)
        setattr(module, LAYER_PATTERN, chosen)


def _self_attention(model: nn.Module) -> Iterator[nn.Module]:
    """Yield all modules that may call self-attention."""
    for name, module in model.named_modules():
        attends = hasattr(module, "layer_idx") or "Attention" in type(module).__name__
        if attends and not any(part in name.lower() for part in CROSS):
            yield module
