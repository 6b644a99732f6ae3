"""Hooks of modules that a copy of the module does not take along."""

from collections.abc import Callable
from typing import Any

from regard.internals import run_uncompiled


class Hook:
    """A hook; in a copy of its module, as by `copy.deepcopy` or `torch.save`, it does nothing.

    torch.compile runs it uncompiled.

    Args:
        function: the function that is called.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any, **options: Any) -> Any:
        return run_uncompiled(self._function, *args, **options)

    def __deepcopy__(self, memo: object) -> "Hook":
        return Hook(nothing)

    def __reduce__(self) -> tuple[Any, ...]:
        return Hook, (nothing,)


def nothing(*args: Any, **options: Any) -> None:
    """Do nothing."""
