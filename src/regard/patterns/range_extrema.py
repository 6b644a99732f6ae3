"""Range minimum and maximum in constant time."""

from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor


class RangeExtrema:
    """A sparse table of the minima and maxima of spans of 1, 2, 4, … values: n · log₂ n of each."""

    def __init__(self, smallest: Int[Tensor, "n"], largest: Int[Tensor, "n"]) -> None:
        self._smallest = _doubled(smallest, torch.minimum)
        self._largest = _doubled(largest, torch.maximum)

    def __call__(
        self, first: Int[Tensor, "..."], last: Int[Tensor, "..."]
    ) -> tuple[Int[Tensor, "..."], Int[Tensor, "..."]]:
        """Return the minimum and maximum from index `first` to `last`, both included."""
        level = torch.frexp((last - first + 1).double()).exponent.long() - 1
        second = last + 1 - torch.bitwise_left_shift(torch.ones_like(level), level)
        return (
            torch.minimum(self._smallest[level, first], self._smallest[level, second]),
            torch.maximum(self._largest[level, first], self._largest[level, second]),
        )


def _doubled(values: Tensor, join: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    rows, width = [values], 1
    while 2 * width <= len(values):
        longer = rows[-1].clone()
        longer[:-width] = join(rows[-1][:-width], rows[-1][width:])
        rows.append(longer)
        width *= 2
    return torch.stack(rows)
