"""Where in a model a call is made."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from torch import nn


class Places(AbstractContextManager["Places"]):
    """Knows which module of a model is running in the thread that watches.

    Args:
        model: the model. It has hooks for as long as this is entered.

    Attributes:
        num_runs: how often the model has begun to run.
    """

    def __init__(self, model: nn.Module) -> None:
        self._names = {module: name for name, module in named_modules(model)}
        self.num_runs = 0
        self._running: list[nn.Module] = []
        self._thread = threading.get_ident()
        self._hooks = ExitStack()

    def __enter__(self) -> "Places":
        for module in self._names:
            if not _is_part(module):
                before = module.register_forward_pre_hook(self._begin, prepend=True)
                self._hooks.callback(before.remove)
                after = module.register_forward_hook(self._end, always_call=True)
                self._hooks.callback(after.remove)
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.close()
        self._running.clear()
        self._names.clear()

    @property
    def current(self) -> nn.Module | None:
        """The innermost module that is running; None if none is."""
        return self._running[-1] if self._running else None

    def name(self, module: nn.Module) -> str | None:
        """Return the path of a module, or None if it isn't the model's."""
        return self._names.get(module)

    def _begin(self, module: nn.Module, arguments: Any) -> None:
        if threading.get_ident() == self._thread:
            self.num_runs += not self._running
            self._running.append(module)

    def _end(self, module: nn.Module, arguments: Any, output: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        # What an exception has left behind goes too.
        while self._running and self._running.pop() is not module:
            pass


def named_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the path of each module and the module; a compiled model's without the wrapper."""
    return getattr(model, "_orig_mod", model).named_modules()


def _is_part(module: nn.Module) -> bool:
    """Say whether a module is one of torch's that has nothing inside, such as a linear layer."""
    return type(module).__module__.startswith("torch.nn.") and not any(
        True for _ in module.children()
    )
