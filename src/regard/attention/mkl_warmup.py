"""A workaround for MKL's inexact first exponential."""

from functools import cache

import torch


@cache
def warm_up_mkl() -> None:
    """Make PyTorch's exponential and logarithm exact on the CPU.

    The MKL of PyTorch 2.x chooses a kernel in the first call of a function. If several threads make
    that call at once, some may get a kernel with half the digits (pytorch/pytorch#188792). A call
    with one number runs in one thread.
    """
    for dtype in (torch.float32, torch.float64):
        one = torch.ones(1, dtype=dtype, device="cpu")
        one.exp()
        one.log()
