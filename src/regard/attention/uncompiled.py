"""Keeping `torch.compile` out of a function."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import torch

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def uncompiled(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Keep `torch.compile` out of a function: it would trace how a pattern is laid out.

    As `torch.compiler.disable`, which takes seconds to import, and is asked only inside a graph.
    """

    @wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        if not torch.compiler.is_compiling():
            return function(*args, **options)
        return cast(Callable[..., Any], torch.compiler.disable(function))(*args, **options)

    return cast(Callable[Parameters, Returned], called)
