"""Private names of torch, and workarounds for its compiler and its kernels."""

# pyright: reportPrivateUsage=false

import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar, cast

import torch
import torch.overrides
from torch._C._dynamo.eval_frame import get_eval_frame_callback as compile_callback
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import CheckpointFunction

__all__ = [
    "NO_CALLBACK",
    "TRANSFORMED",
    "compile_callback",
    "in_dispatch_mode",
    "in_functorch",
    "in_reentrant_checkpoint",
    "is_backward",
    "leave_graph",
    "modes",
    "on_mode_stack",
    "recompile_limit",
    "run_uncompiled",
    "skip_compile",
    "tree_map",
    "uncompiled",
    "warm_up_mkl",
    "without_torch_function",
]

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def without_torch_function() -> AbstractContextManager[Any]:
    """Return a context in which function modes see no calls."""
    return torch._C.DisableTorchFunction()


def in_dispatch_mode() -> bool:
    """Return whether a dispatch mode is active, under which tensors may be fake."""
    return bool(torch._C._len_torch_dispatch_stack())


TRANSFORMED = "it runs under torch.func (vmap, grad, jacrev, …), where tensors have no memory"
"""Why nothing can be read from tensors in `in_functorch`."""


def in_functorch() -> bool:
    """Return whether a transform of `torch.func` is active."""
    return torch._C._are_functorch_transforms_active()


def recompile_limit(limit: int) -> AbstractContextManager[Any]:
    """Return a context with another limit of recompilations than PyTorch's 8."""
    return torch._dynamo.config.patch(recompile_limit=limit)


def skip_compile(function: Callable[..., Any], reason: str | None = None) -> None:
    """Make torch.compile skip a function, but not those that it calls.

    Args:
        function: the function.
        reason: what torch says where it must not be skipped, with fullgraph=True.
    """
    import torch._dynamo  # slow to import

    torch._dynamo.decorators.skip(function)
    function._torchdynamo_disable_msg = reason  # pyright: ignore[reportFunctionMemberAccess]


def uncompiled(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Exclude a function from `torch.compile`, which would trace the layout of a pattern.

    `torch.compiler.disable` takes seconds to import, so it is called only while compiling.
    """

    @wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        if not torch.compiler.is_compiling():
            return function(*args, **options)
        return cast(Callable[..., Any], torch.compiler.disable(function))(*args, **options)

    return cast(Callable[Parameters, Returned], called)


NO_CALLBACK = (None, False)
"""What `compile_callback` returns unless torch.compile compiles what is called here."""


def run_uncompiled(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run a function; where torch.compile would compile what it calls, without that."""
    if compile_callback() in NO_CALLBACK:
        return function(*args, **options)
    return torch.compiler.disable(function)(*args, **options)


def leave_graph(reason: str) -> None:
    """Make torch.compile, which is tracing, run what comes uncompiled."""
    torch._dynamo.graph_break(reason)


@cache
def warm_up_mkl() -> None:
    """Make PyTorch's exponential and logarithm exact on the CPU.

    The MKL of PyTorch 2.x chooses a kernel in the first call of a function. If several threads make
    that call at once, some may get a kernel with half the digits (pytorch/pytorch#188792). A call
    with one number runs in one thread.
    """
    for dtype in (torch.float32, torch.float64):
        number = torch.ones(1, dtype=dtype, device="cpu")
        number.exp()
        number.log()


def is_backward() -> bool:
    """Return whether a backward pass is running in this thread."""
    return torch._C._current_graph_task_id() != -1


def in_reentrant_checkpoint() -> bool:
    """Return whether this is computed without gradients, to be computed again with them."""
    if torch.is_grad_enabled():
        return False
    forward, frame = CheckpointFunction.forward.__code__, sys._getframe()
    while frame is not None and frame.f_code is not forward:
        frame = frame.f_back
    return frame is not None


def modes() -> list[TorchFunctionMode]:
    """Return the function modes of this thread; the last one is the first to see a call."""
    return torch.overrides._get_current_function_mode_stack()


@contextmanager
def on_mode_stack(mode: TorchFunctionMode) -> Generator[None]:
    """Push a function mode onto the stack of this thread, and take it off from wherever it is."""
    torch.overrides._push_mode(mode)
    try:
        yield
    finally:
        stack = modes()
        if mode in stack:
            later = stack[stack.index(mode) + 1 :]
            for _ in range(len(later) + 1):
                torch.overrides._pop_mode()
            for other in later:
                torch.overrides._push_mode(other)
