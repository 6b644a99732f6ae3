"""Exact exponentials from the first call on."""

from functools import cache

import torch


@cache
def warm_up_mkl() -> None:
    """See to it that PyTorch's exponential and logarithm are exact on the CPU.

    The MKL that PyTorch 2.x brings along chooses a kernel for a function when it is called first.
    Where several threads make that first call at once, some may get a kernel with half of the
    digits, without a word (pytorch/pytorch#188792). A call with one number comes alone.
    """
    for dtype in (torch.float32, torch.float64):
        one = torch.ones(1, dtype=dtype, device="cpu")
        one.exp()
        one.log()
