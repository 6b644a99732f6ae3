"""A process of its own for what torch compiles, without the checks of shapes of the tests.

They wrap every function, and torch.compile can't see through them. It is started once: torch and
its compiler take longer to load than most of what is compiled.
"""

from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import torch

Elsewhere = Callable[..., Any]
"""Calls a function of a module with arguments in the other process, and returns what it does."""


@contextmanager
def other_process() -> Generator[Elsewhere]:
    """Start the process; yield what calls functions there, each as if none had been before."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        yield lambda function, *arguments: process.submit(_afresh, function, *arguments).result()


def _afresh(function: Callable[..., Any], *arguments: Any) -> Any:
    torch.compiler.reset()
    return function(*arguments)
