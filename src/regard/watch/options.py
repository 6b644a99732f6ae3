"""What to do with the calls that are seen."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import nn

from regard.matrix.reduction import AnyReduction


@dataclass(frozen=True)
class Options:
    """What to do with calls.

    Attributes:
        wanted: says of a module's path and of the module whether its calls are taken down.
        reductions: what to compute of each call; then no tensors are kept.
        copy: whether to copy what is kept.
        check: whether to compare rows with the kernel's output.
        offload: the device to which what is kept is moved, if to another.
        values: whether to keep values too.
        effects: whether to take the gradients of outputs down.
    """

    wanted: Callable[[str, nn.Module], bool]
    reductions: Sequence[AnyReduction] | None = None
    copy: bool = False
    check: bool = True
    offload: str | None = None
    values: bool = False
    effects: bool = False
