"""Find the output projection of a call."""

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
from regard.internals import without_torch_function

_MOVES = SHAPES | COPIES | GATHERS
"""Functions after which the output is still the output."""


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
            if address := _address(copy):
                self.copies[address] = copy.detach()

    def is_in(self, tensors: Iterable[Tensor]) -> bool:
        """Return whether one of some tensors has its numbers."""
        return any(_address(one) in self.copies for one in tensors)


class Projections(AbstractContextManager["Projections"]):
    """Finds the linear layer whose input equals the output of a call.

    If anything else receives it too, as with adapters and gates, there is no projection.

    Args:
        model: the model. It has hooks inside the context.
        found: called with the number of a call and its projection, or None.
    """

    def __init__(
        self, model: nn.Module, found: Callable[[int, OutputProjection | None], None]
    ) -> None:
        self._names = {module: name for name, module in named_modules(model)}
        self._found = found
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
            self._tell(index, module.out_proj, module.out_proj.weight.T, output.shape[1])

    def see(
        self, function: Any, args: Sequence[Any], options: Mapping[str, Any], result: Any
    ) -> None:
        """Refuse the awaited call if a function computes something else of its output."""
        awaited = self._awaited
        if awaited is None or awaited.is_refused or threading.get_ident() != self._thread:
            return
        given = list(tensors_in([*args, *options.values()]))
        with without_torch_function():
            if not awaited.is_in(given):
                return
            results = [one for one in tensors_in([result]) if one.is_floating_point()]
            is_attribute = getattr(function, "__name__", "") == "__get__"
            kept = function in DROPOUT and awaited.is_in(results)
            if function in _MOVES or is_attribute or kept:
                awaited.add(results)
                return
        weight = None if awaited.taken_by is None else awaited.taken_by.weight
        is_projection = function in _PRODUCTS and any(one is weight for one in given)
        if results and not is_projection:
            self._refuse(awaited)

    def _begin(
        self, module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        awaited = self._awaited
        given = next(tensors_in([*arguments, *options.values()]), None)
        if awaited is None or given is None or awaited.taken_by is module or awaited.is_refused:
            return
        if threading.get_ident() != self._thread or not _is_same(awaited.output, given):
            return
        weight = _weight_of(module)
        # Weights that are elsewhere until the layer runs, as those of accelerate, are not known.
        if awaited.taken_by is not None or weight is None or weight.is_meta:
            self._refuse(awaited)
            return
        awaited.taken_by = module
        with without_torch_function():
            awaited.add([given])
        self._tell(awaited.index, module, weight, awaited.output.shape[1])

    def _refuse(self, awaited: _Awaited) -> None:
        awaited.is_refused = True
        self._found(awaited.index, None)

    def _tell(self, index: int, module: nn.Module, weight: Tensor, num_heads: int) -> None:
        self._found(index, OutputProjection(self._names[module], weight, num_heads))


_PRODUCTS = (F.linear, torch.addmm)
"""The functions of linear layers: `nn.Linear` and transformers' `Conv1D`."""


def tensors_in(things: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors in some things, and in lists and dictionaries of them."""
    for thing in things:
        if isinstance(thing, Tensor):
            yield thing
        elif isinstance(thing, list | tuple):
            yield from tensors_in(cast(Iterable[Any], thing))
        elif isinstance(thing, dict):
            yield from tensors_in(cast(dict[Any, Any], thing).values())


def _address(tensor: Tensor) -> int:
    """Return the address of a tensor's memory; 0 if it has none, as in `torch.func`."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0


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


def _is_same(output: Float[Tensor, "batch heads queries value_dim"], given: Tensor) -> bool:
    """Return whether a tensor is an output with joined heads."""
    batch, heads, queries, dim = output.shape
    if given.numel() != output.numel() or not given.dim() or given.shape[-1] != heads * dim:
        return False
    with torch.no_grad(), without_torch_function():
        return torch.equal(given.reshape(batch, queries, heads, dim), output.transpose(1, 2))
