"""Options of a watcher, of models and of engines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import nn

from regard.matrix.reduction import AnyReduction


@dataclass(frozen=True)
class Options:
    """Options of a watcher.

    Attributes:
        wanted: returns whether to watch a module, from its path and itself.
        reductions: the reductions of each call; if any, no tensors are kept.
        copy: whether to copy tensors; those of engines always are.
        check: whether to compare rows with the kernel's output.
        offload: the device for kept tensors, if another.
        values: whether to keep values too.
        effects: whether to collect the gradients of outputs; engines have none.
    """

    wanted: Callable[[str, nn.Module], bool]
    reductions: Sequence[AnyReduction] | None = None
    copy: bool = False
    check: bool = True
    offload: str | None = None
    values: bool = False
    effects: bool = False
