"""The few things that torch does not offer by a public name."""

# pyright: reportPrivateUsage=false

from contextlib import AbstractContextManager
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
