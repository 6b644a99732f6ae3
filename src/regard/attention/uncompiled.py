"""Exclude a function from `torch.compile`."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import torch

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


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
