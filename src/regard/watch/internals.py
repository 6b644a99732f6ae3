"""The few things that torch does not offer by a public name."""

# pyright: reportPrivateUsage=false

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.overrides
from torch.overrides import TorchFunctionMode


def without_torch_function() -> AbstractContextManager[Any]:
    """Return a context in which no function mode sees what is called."""
    return torch._C.DisableTorchFunction()


def is_backward() -> bool:
    """Say whether a backward pass is running in this thread."""
    return torch._C._current_graph_task_id() != -1


def modes() -> list[TorchFunctionMode]:
    """Return the function modes of this thread; the last one is the first to see a call."""
    return torch.overrides._get_current_function_mode_stack()


@contextmanager
def entered_below(
    mode: TorchFunctionMode, above: Callable[[TorchFunctionMode], bool]
) -> Generator[None]:
    """Put a function mode on the stack of this thread, below the modes that are to be above it."""
    stack = modes()
    _put(next((place for place, one in enumerate(stack) if above(one)), len(stack)), mode)
    try:
        yield
    finally:
        place = next((place for place, one in enumerate(modes()) if one is mode), None)
        if place is not None:
            later = modes()[place + 1 :]
            _pop(len(later) + 1)
            _push(later)


def _put(place: int, mode: TorchFunctionMode) -> None:
    later = modes()[place:]
    _pop(len(later))
    _push([mode, *later])


def _pop(count: int) -> None:
    for _ in range(count):
        torch.overrides._pop_mode()


def _push(some: list[TorchFunctionMode]) -> None:
    for mode in some:
        torch.overrides._push_mode(mode)
