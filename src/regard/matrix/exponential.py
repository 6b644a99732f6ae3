"""The exponential function, without its slow corner."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

_ALL = (slice(None),)


def lowest_exponent(dtype: torch.dtype) -> float:
    """Return the lowest x that `exponential_` takes for more than 0, but for rounding.

    It is 0.25 above the logarithm of the smallest normal number.
    """
    return math.log(torch.finfo(dtype).tiny) + 0.25


def exponential_(x: Tensor, out: Tensor | None = None, low: Sequence[slice] = _ALL) -> Tensor:
    """Return e to the power of x, 0 where that is below 1.29 times the smallest normal one.

    What PyTorch calls on the CPU is some sixty times slower where the result underflows, as it does
    for every pair that a mask forbids, and for most pairs of a head that looks at a sink. So what
    would underflow is lifted just above that, and made 0 afterwards.

    Args:
        x: what is lifted in place.
        out: where to write the result; by default in place.
        low: the runs of the last axis in which results may underflow; by default all of it.
    """
    least = lowest_exponent(x.dtype)
    for span in low:
        x[..., span].clamp_min_(least)
    found = torch.exp(x, out=x if out is None else out)
    for span in low:
        functional.threshold(found[..., span], math.exp(least + 1e-3), 0.0, inplace=True)
    return found
