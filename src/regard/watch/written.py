"""Weights that a model writes down: a softmax that is multiplied with values."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

SOFTMAX = {F.softmax, torch.softmax, Tensor.softmax}

_CHANGES = {torch.masked_fill, Tensor.masked_fill}
_HARMLESS = {
    F.dropout,
    torch.dropout,
    torch.reshape,
    Tensor.bfloat16,
    Tensor.contiguous,
    Tensor.double,
    Tensor.float,
    Tensor.half,
    Tensor.reshape,
    Tensor.to,
    Tensor.type,
    Tensor.type_as,
    Tensor.view,
}
_PRODUCTS = {
    torch.bmm,
    torch.einsum,
    torch.matmul,
    Tensor.__matmul__,
    Tensor.bmm,
    Tensor.matmul,
}

FOLLOWED = _CHANGES | _HARMLESS | _PRODUCTS
"""What may be done to weights: after the softmax, and when values are added up by them."""


class Written:
    """Follows the latest softmax until it is multiplied with something.

    Args:
        found: is called with weights, [..., queries, keys], once they have turned out to be such.
    """

    def __init__(self, found: Callable[[Tensor], None]) -> None:
        self._found = found
        self._weights: Tensor | None = None
        self._names: list[Tensor] = []

    @property
    def pending(self) -> bool:
        """Whether there is a softmax to follow."""
        return bool(self._names)

    def begin(self, function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Tensor:
        """Run a softmax."""
        result = function(*arguments, **options)
        axis = options.get("dim", arguments[1] if len(arguments) > 1 else None)
        last = result.dim() >= 2 and axis in (-1, result.dim() - 1)
        self._weights, self._names = (result, [result]) if last else (None, [])
        return result

    def follow(self, function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Run one of the functions that are followed."""
        if not self._is_known(arguments):
            return function(*arguments, **options)
        if function is F.dropout and options.get("inplace", len(arguments) > 3 and arguments[3]):
            assert self._weights is not None
            self._weights = self._weights.clone()
        result = function(*arguments, **options)
        if function in _PRODUCTS:
            weights = self._weights
            self.forget()
            assert weights is not None
            self._found(weights)
            return result
        self._names.append(result)
        if function in _CHANGES:
            self._weights = result
        return result

    def forget(self) -> None:
        """Let the latest softmax go."""
        self._weights, self._names = None, []

    def _is_known(self, arguments: Sequence[Any]) -> bool:
        """Say whether weights, under any name, are among the arguments of a function."""
        flat = [x for one in arguments for x in (one if isinstance(one, list | tuple) else [one])]
        return any(one is name for one in flat for name in self._names)
