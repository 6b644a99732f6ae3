"""Where in a model a call is made."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn


@dataclass(eq=False)
class Frame:
    """A module that is running.

    Attributes:
        module: the module.
        arguments: what it was given.
        options: what it was given by name.
        scored: whether two activations were multiplied in it since its latest softmax.
        calls: the numbers of calls of which it has written the weights out.
        problem: why these are not all of its attention, if they are not.
    """

    module: nn.Module
    arguments: Sequence[Any]
    options: Mapping[str, Any]
    scored: bool = False
    calls: list[int] = field(default_factory=list[int])
    problem: str = ""

    @property
    def given(self) -> list[Tensor]:
        """The tensors that the module was given."""
        flat: list[Any] = []
        for one in (*self.arguments, *self.options.values()):
            flat += one if isinstance(one, list | tuple) else [one]
        return [one for one in flat if isinstance(one, Tensor)]


class ModuleStack(AbstractContextManager["ModuleStack"]):
    """Knows which module of a model is running in the thread that watches.

    Args:
        model: the model. It has hooks for as long as this is entered.
        ended: is called when a module has ended, with what was running.

    Attributes:
        num_runs: how often the model has begun to run.
    """

    def __init__(self, model: nn.Module, ended: Callable[[Frame], None]) -> None:
        self._names = {module: name for name, module in named_modules(model)}
        self.num_runs = 0
        self._ended = ended
        self._running: list[Frame] = []
        self._thread = threading.get_ident()
        self._hooks = ExitStack()

    def __enter__(self) -> "ModuleStack":
        for module in self._names:
            if not _is_part(module):
                before = module.register_forward_pre_hook(
                    self._begin, prepend=True, with_kwargs=True
                )
                self._hooks.callback(before.remove)
                after = module.register_forward_hook(self._end, always_call=True)
                self._hooks.callback(after.remove)
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.close()
        self._running.clear()
        self._names.clear()

    @property
    def running(self) -> Sequence[Frame]:
        """The modules that are running, the innermost last."""
        return self._running

    @property
    def current(self) -> nn.Module | None:
        """The innermost module that is running; None if none is."""
        return self._running[-1].module if self._running else None

    def name(self, module: nn.Module) -> str | None:
        """Return the path of a module, or None if it isn't the model's."""
        return self._names.get(module)

    def _begin(self, module: nn.Module, arguments: Any, options: Any) -> None:
        if threading.get_ident() == self._thread:
            self.num_runs += not self._running
            self._running.append(Frame(module, arguments, options))

    def _end(self, module: nn.Module, arguments: Any, output: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        # What an exception has left behind goes too.
        while self._running:
            frame = self._running.pop()
            self._ended(frame)
            if frame.module is module:
                break


def named_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the path of each module and the module; a compiled model's without the wrapper."""
    return getattr(model, "_orig_mod", model).named_modules()


def _is_part(module: nn.Module) -> bool:
    """Say whether a module is one of torch's that has nothing inside, such as a linear layer."""
    return type(module).__module__.startswith("torch.nn.") and not any(
        True for _ in module.children()
    )
