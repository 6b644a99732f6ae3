"""Weights that a model writes down: a softmax that is multiplied with values."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

SOFTMAX = {F.softmax, torch.softmax, Tensor.softmax}

FOLLOWED = {
    F.dropout,
    torch.dropout,
    torch.masked_fill,
    torch.reshape,
    Tensor.contiguous,
    Tensor.bfloat16,
    Tensor.double,
    Tensor.float,
    Tensor.half,
    Tensor.masked_fill,
    Tensor.reshape,
    Tensor.to,
    Tensor.type,
    Tensor.type_as,
    Tensor.view,
}
"""What is done to weights between the softmax and the product, and leaves them what they are."""

PRODUCTS = {
    torch.bmm,
    torch.einsum,
    torch.matmul,
    Tensor.__matmul__,
    Tensor.bmm,
    Tensor.matmul,
}


class Written:
    """Follows the latest softmax until it is multiplied with something.

    Args:
        found: is called with weights, [..., queries, keys], once they have turned out to be such.
    """

    def __init__(self, found: Callable[[Tensor], None]) -> None:
        self._found = found
        self._weights: Tensor | None = None
        self._names: list[Tensor] = []

    def see(self, function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Run a function of torch, one of those above, and look at what it does to weights."""
        result = function(*arguments, **options)
        if function in SOFTMAX:
            axis = options.get("dim", arguments[1] if len(arguments) > 1 else None)
            last = result.dim() >= 2 and axis in (-1, result.dim() - 1)
            self._weights, self._names = (result, [result]) if last else (None, [])
        elif self._weights is not None and self._is_known(arguments):
            if function in FOLLOWED:
                self._names.append(result)
                if function in (torch.masked_fill, Tensor.masked_fill):
                    self._weights = result
            else:
                weights = self._weights
                self.forget()
                self._found(weights)
        return result

    def forget(self) -> None:
        """Let the latest softmax go."""
        self._weights, self._names = None, []

    def _is_known(self, arguments: Sequence[Any]) -> bool:
        """Say whether weights, under any name, are among the arguments of a function."""
        flat = [x for one in arguments for x in (one if isinstance(one, list | tuple) else [one])]
        return any(one is name for one in flat for name in self._names)
