"""What a model itself says its attention weights are, without Regard.

Two witnesses. One is what the model returns with `output_attentions=True`. The other looks on at
the functions that models ask for attention: those of transformers' interface under eager attention,
which return weights; `nn.MultiheadAttention`, which does so if asked; and PyTorch's
`scaled_dot_product_attention`, whose documentation says in a few lines what it computes.
"""

import inspect
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


@dataclass
class Witness:
    """What was written down.

    Attributes:
        returned: what the model returned, by the name of the output: one tensor a layer.
        asked: what the functions returned, with the paths of the modules that asked for it.
    """

    returned: dict[str, list[Tensor]] = field(default_factory=dict)
    asked: list[tuple[str, Tensor]] = field(default_factory=list)


def returned_weights(output: Any) -> dict[str, list[Tensor]]:
    """Return the weights in a model's output, by name; those inside others by a dotted path."""
    found: dict[str, list[Tensor]] = {}

    def walk(thing: Any, path: str) -> None:
        if isinstance(thing, dict):
            for name, part in thing.items():
                where = f"{path}.{name}" if path else name
                if "attention" in name and "mask" not in name:
                    found.update(_lists(part, where))
                else:
                    walk(part, where)

    walk(output, "")
    return found


def _lists(thing: Any, path: str) -> dict[str, list[Tensor]]:
    """Return lists of tensors; several inside another, as of kinds of attention, one by one."""
    parts = list(thing) if isinstance(thing, list | tuple) else []
    if any(isinstance(part, list | tuple) for part in parts):
        found: dict[str, list[Tensor]] = {}
        for number, part in enumerate(parts):
            found.update(_lists(part, f"{path}[{number}]"))
        return found
    tensors = list(_tensors(thing))
    return {path: tensors} if tensors else {}


def _tensors(thing: Any) -> Generator[Tensor]:
    if isinstance(thing, Tensor):
        if thing.dim() >= 3:
            yield thing
    elif isinstance(thing, list | tuple):
        for part in thing:
            yield from _tensors(part)
    elif isinstance(thing, dict):
        for part in thing.values():
            yield from _tensors(part)


@contextmanager
def looking_on(model: nn.Module, asked: list[tuple[str, Tensor]]) -> Generator[None]:
    """Write down what functions of attention return while a model runs."""
    from transformers.modeling_utils import AttentionInterface

    running: list[str] = []
    hooks: list[Any] = []
    names = {module: name for name, module in model.named_modules()}

    def begin(module: nn.Module, arguments: Any) -> None:
        running.append(names[module])

    def end(module: nn.Module, arguments: Any, output: Any) -> None:
        running.pop()

    for module in names:
        hooks.append(module.register_forward_pre_hook(begin))
        hooks.append(module.register_forward_hook(end, always_call=True))
    original = AttentionInterface.get_interface
    mode = _Functions(lambda weights: asked.append((running[-1] if running else "", weights)))

    def get_interface(self: Any, name: str, default: Callable[..., Any]) -> Callable[..., Any]:
        function = original(self, name, default)

        def run(module: nn.Module, *arguments: Any, **options: Any) -> Any:
            # Kernels that return no weights are read where they call PyTorch's.
            running.append(names.get(module, "?"))
            before = len(asked)
            try:
                output = function(module, *arguments, **options)
            finally:
                running.pop()
            if isinstance(output, tuple) and len(output) > 1 and isinstance(output[1], Tensor):
                asked[before:] = [(names.get(module, "?"), output[1].detach())]
            return output

        return run

    AttentionInterface.get_interface = get_interface
    try:
        with mode:
            yield
    finally:
        AttentionInterface.get_interface = original
        for hook in hooks:
            hook.remove()


_SIGNATURE = inspect.signature(F.multi_head_attention_forward)


class _Functions(TorchFunctionMode):
    """Writes down the weights of PyTorch's own functions of attention.

    Args:
        found: is told of weights.
    """

    def __init__(self, found: Callable[[Tensor], None]) -> None:
        super().__init__()
        self._found = found

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        options = kwargs or {}
        result = func(*args, **options)
        if func is F.scaled_dot_product_attention:
            self._found(documented(*args, **options))
        elif func is F.multi_head_attention_forward:
            given = dict(_SIGNATURE.bind(*args, **options).arguments)
            given.update(need_weights=True, average_attn_weights=False)
            self._found(func(**given)[1])
        return result


def documented(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return the weights of `scaled_dot_product_attention`, as its documentation has them."""
    if enable_gqa:
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    scores = query @ key.transpose(-2, -1) * scale
    if is_causal:
        order = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~order, -torch.inf)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        else:
            scores = scores + attn_mask
    return scores.softmax(dim=-1).nan_to_num()
