"""Find the output projection of a call: the linear layer whose input equals its output.

Norms of projected values need the matrix W_O of the layer behind attention, which no model names
alike. After a call, its output is awaited:

    output [batch, heads, q, dim] ──► transpose, reshape, dropout ──► linear layer       found
                                  └─► anything else: a gate, an adapter                  refused

1. Tensors with the output's numbers are known by the address of their memory: views share it, and
   copies by functions that only move numbers are added. Addresses are kept with their tensors, so
   that no other tensor gets them meanwhile.
2. A linear layer that begins with an input of these numbers, with joined heads, is the projection.
   The numbers are compared, because models also join heads in ways that are not followed.
3. Any other function that reads a known tensor, or a second layer, refuses the projection: the
   output then also goes elsewhere, and W_O is not all that happens to it.

Cost: the addresses of the arguments of each function, and one comparison of the output per layer of
its size. The latest call is awaited, until the next one.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.calls.outputs import OutputProjection
from regard.capture.functions import COPIES, DROPOUT, GATHERS, SHAPES
from regard.capture.module_stack import Hook, named_modules
from regard.capture.projected_tokens import address
from regard.internals import without_torch_function

_MOVES = SHAPES | COPIES | GATHERS
"""Functions after which the output is still the output."""

_PRODUCTS = (F.linear, torch.addmm)
"""The functions of linear layers: `nn.Linear` and transformers' `Conv1D`."""


@dataclass(eq=False)
class _Awaited:
    """The latest call.

    Attributes:
        index: its number.
        output: its output.
        taken_by: the linear layer that received it.
        copies: tensors with its numbers, by address; while they are kept, it is not used again.
        is_refused: whether something else received it too.
    """

    index: int
    output: Float[Tensor, "batch heads queries value_dim"]
    taken_by: nn.Module | None = None
    copies: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    is_refused: bool = False

    def __post_init__(self) -> None:
        self.add([self.output])

    def add(self, copies: Iterable[Tensor]) -> None:
        """Add tensors with its numbers."""
        for copy in copies:
            if place := address(copy):
                self.copies[place] = copy.detach()

    def is_in(self, tensors: Iterable[Tensor]) -> bool:
        """Return whether any of these tensors has its numbers."""
        return any(address(tensor) in self.copies for tensor in tensors)


class Projections(AbstractContextManager["Projections"]):
    """Finds the linear layer whose input equals the output of a call.

    Args:
        model: the model. It has hooks inside the context.
        notify: called with the number of a call and its projection; again with None if it turns out
            to be refused.
    """

    def __init__(
        self, model: nn.Module, notify: Callable[[int, OutputProjection | None], None]
    ) -> None:
        self._names = {module: name for name, module in named_modules(model)}
        self._notify = notify
        self._awaited: _Awaited | None = None
        self._thread = threading.get_ident()
        self._hooks = ExitStack()

    def __enter__(self) -> "Projections":
        wrapped = {
            module.base_layer
            for module in self._names
            if hasattr(module, "base_layer") and not getattr(module, "merged", False)
        }
        for module in self._names:
            # An adapter of PEFT may change the result of the layer that it wraps.
            if _weight_of(module) is not None and module not in wrapped:
                hook = module.register_forward_pre_hook(Hook(self._begin), with_kwargs=True)
                self._hooks.callback(hook.remove)
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.close()
        self._awaited = None

    def expect(
        self,
        index: int,
        module: nn.Module,
        output: Float[Tensor, "batch heads queries value_dim"],
    ) -> None:
        """Wait for the layer that receives the output of a call.

        Args:
            index: its number.
            module: its module.
            output: its output.
        """
        self._awaited = _Awaited(index, output)
        if type(module) is nn.MultiheadAttention:
            # Its projection is a module that is never called.
            self._awaited = None
            self._accept(index, module.out_proj, module.out_proj.weight.T, output.shape[1])

    def see(
        self, function: Any, args: Sequence[Any], options: Mapping[str, Any], result: Any
    ) -> None:
        """Refuse the awaited call if a function computes something else of its output."""
        awaited = self._awaited
        if awaited is None or awaited.is_refused or threading.get_ident() != self._thread:
            return
        inputs = list(tensors_in([*args, *options.values()]))
        with without_torch_function():
            if not awaited.is_in(inputs):
                return
            results = [x for x in tensors_in([result]) if x.is_floating_point()]
            is_attribute = getattr(function, "__name__", "") == "__get__"
            # Dropout that does nothing, in evaluation, returns its input.
            kept = function in DROPOUT and awaited.is_in(results)
            if function in _MOVES or is_attribute or kept:
                awaited.add(results)
                return

        # The product inside the linear layer itself is no other use.
        weight = None if awaited.taken_by is None else awaited.taken_by.weight
        is_projection = function in _PRODUCTS and any(x is weight for x in inputs)
        if results and not is_projection:
            self._refuse(awaited)

    def _begin(
        self, module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        awaited = self._awaited
        layer_input = next(tensors_in([*arguments, *options.values()]), None)
        if awaited is None or layer_input is None:
            return
        if awaited.taken_by is module or awaited.is_refused:
            return
        if threading.get_ident() != self._thread or not _is_same(awaited.output, layer_input):
            return

        weight = _weight_of(module)
        # Weights that are elsewhere until the layer runs, as those of accelerate, are not known.
        if awaited.taken_by is not None or weight is None or weight.is_meta:
            self._refuse(awaited)
            return
        awaited.taken_by = module
        with without_torch_function():
            awaited.add([layer_input])
        self._accept(awaited.index, module, weight, awaited.output.shape[1])

    def _refuse(self, awaited: _Awaited) -> None:
        awaited.is_refused = True
        self._notify(awaited.index, None)

    def _accept(self, index: int, module: nn.Module, weight: Tensor, num_heads: int) -> None:
        self._notify(index, OutputProjection(self._names[module], weight, num_heads))


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors among values, also in lists and dictionaries."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(cast(Iterable[Any], value))
        elif isinstance(value, dict):
            yield from tensors_in(cast(dict[Any, Any], value).values())


def _weight_of(module: nn.Module) -> Float[Tensor, "inputs outputs"] | None:
    """Return the matrix of a linear layer; None for other modules and quantised layers."""
    weight: Any = getattr(module, "weight", None)
    if type(weight) is not nn.Parameter or not weight.is_floating_point():
        return None
    if type(module) is nn.Linear:
        return weight.T
    if (type(module).__module__, type(module).__name__) == ("transformers.pytorch_utils", "Conv1D"):
        return weight
    return None


def _is_same(output: Float[Tensor, "batch heads queries value_dim"], tensor: Tensor) -> bool:
    """Return whether a tensor is an output with joined heads."""
    batch, heads, queries, dim = output.shape
    if tensor.numel() != output.numel() or not tensor.dim() or tensor.shape[-1] != heads * dim:
        return False
    with torch.no_grad(), without_torch_function():
        return torch.equal(tensor.reshape(batch, queries, heads, dim), output.transpose(1, 2))
