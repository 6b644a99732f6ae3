"""Find the output projection of a call."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.calls.output_projection import OutputProjection
from regard.internals import without_torch_function
from regard.watch.module_stack import named_modules


@dataclass(eq=False)
class _Awaited:
    """The latest call.

    Attributes:
        index: its number.
        output: its output.
        taken_by: the linear layer that received it.
    """

    index: int
    output: Float[Tensor, "batch heads queries value_dim"]
    taken_by: nn.Module | None = None


class Projections(AbstractContextManager["Projections"]):
    """Finds the linear layer whose input equals the output of a call.

    If two layers receive it, as with adapters, neither is the projection.

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
        for module in self._names:
            if _weight_of(module) is not None:
                self._hooks.callback(module.register_forward_pre_hook(self._begin).remove)
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

    def _begin(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        awaited, given = self._awaited, arguments[0] if arguments else None
        if awaited is None or not isinstance(given, Tensor) or awaited.taken_by is module:
            return
        if threading.get_ident() != self._thread or not _is_same(awaited.output, given):
            return
        if awaited.taken_by is not None:
            self._found(awaited.index, None)
            return
        weight = _weight_of(module)
        assert weight is not None
        awaited.taken_by = module
        self._tell(awaited.index, module, weight, awaited.output.shape[1])

    def _tell(self, index: int, module: nn.Module, weight: Tensor, num_heads: int) -> None:
        self._found(index, OutputProjection(self._names[module], weight, num_heads))


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
