"""The stack of running modules."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.capture.hook import Hook
from regard.capture.projected_tokens import ProjectedTokens


@dataclass(eq=False)
class Frame:
    """A running module.

    Attributes:
        module: the module.
        arguments: its positional arguments.
        options: its keyword arguments.
        scored: whether two activations were multiplied in it since its latest softmax.
        calls: the numbers of its calls with explicit weights.
        problem: why these are not all of its attention, if so.
        grad: whether gradients were enabled when it began.
        attends: whether it has run attention of its own, by a softmax or a kernel.
        projected: what its linear layers returned; None if it needs not be known.
        has_layers: whether it has run linear layers. A module without any, such as one that gets
            queries, keys and values, knows neither sequences nor heads: its callers do.
    """

    module: nn.Module
    arguments: Sequence[Any]
    options: Mapping[str, Any]
    scored: bool = False
    calls: list[int] = field(default_factory=list[int])
    problem: str = ""
    grad: bool = field(default_factory=torch.is_grad_enabled)
    attends: bool = False
    projected: ProjectedTokens | None = None
    has_layers: bool = False
    _has_given: bool = False

    def add_projected(self, result: object, *, from_layer: bool = True) -> None:
        """Add what a linear layer returned, or a module that adds to what its layer returns."""
        self.has_layers |= from_layer
        if self.projected is not None:
            self.projected.add(result, self.given)

    def sequences(
        self, values: Float[Tensor, "rows tokens dim"], ends: Sequence[int], *, given: bool
    ) -> list[int] | None:
        """Return the sequence of each row of values; see `ProjectedTokens.sequences`.

        With `given`, they may also be tokens that the module was given.
        """
        if self.projected is None:
            return None
        if given and not self._has_given:
            self._has_given = True
            for tensor in self.given:
                self.projected.add(tensor, ())
        return self.projected.sequences(values, ends)

    @property
    def given(self) -> list[Tensor]:
        """The tensors among the arguments."""
        flat: list[Any] = []
        for one in (*self.arguments, *self.options.values()):
            flat += one if isinstance(one, list | tuple) else [one]
        return [one for one in flat if isinstance(one, Tensor)]


class ModuleStack(AbstractContextManager["ModuleStack"]):
    """The stack of running modules of a model, in the current thread.

    Args:
        model: the model. It has hooks inside the context.
        ended: called with the frame of each finished module.

    Attributes:
        num_runs: number of calls of the model.
    """

    def __init__(self, model: nn.Module, ended: Callable[[Frame], None]) -> None:
        self._names = {module: name for name, module in named_modules(model)}
        self.num_runs = 0
        self._ended = ended
        self._running: list[Frame] = []
        self._thread = threading.get_ident()
        self._hooks = ExitStack()
        # Modules that ran without attention of their own, most of a model.
        self._others: set[nn.Module] = set()

    def __enter__(self) -> "ModuleStack":
        for module in self._names:
            if not _is_part(module):
                before = module.register_forward_pre_hook(
                    Hook(self._begin), prepend=True, with_kwargs=True
                )
                self._hooks.callback(before.remove)
                after = module.register_forward_hook(Hook(self._end), always_call=True)
                self._hooks.callback(after.remove)
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.close()
        self._running.clear()
        self._names.clear()
        self._others.clear()

    @property
    def running(self) -> Sequence[Frame]:
        """The running modules, the innermost last."""
        return self._running

    @property
    def current(self) -> nn.Module | None:
        """The innermost running module, or None."""
        return self._running[-1].module if self._running else None

    def name(self, module: nn.Module) -> str | None:
        """Return the path of a module, or None if it is not in the model."""
        return self._names.get(module)

    def _begin(self, module: nn.Module, arguments: Any, options: Any) -> None:
        if threading.get_ident() == self._thread:
            self.num_runs += not self._running
            projected = None if module in self._others else ProjectedTokens()
            self._running.append(Frame(module, arguments, options, projected=projected))

    def _end(self, module: nn.Module, arguments: Any, output: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        # Also pop frames that an exception left behind.
        while self._running:
            frame = self._running.pop()
            self._ended(frame)
            if not frame.attends:
                self._others.add(frame.module)
            elif not frame.has_layers and self._running:
                self._running[-1].attends = True
            if frame.module is module:
                if self._running:
                    # Adapters add to what a layer returns.
                    self._running[-1].add_projected(output, from_layer=frame.has_layers)
                break


def named_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the path of each module and the module, without the wrapper of a compiled model."""
    return getattr(model, "_orig_mod", model).named_modules()


def _is_part(module: nn.Module) -> bool:
    """Return whether a module is one of torch's without children, such as a linear layer."""
    return type(module).__module__.startswith("torch.nn.") and not any(
        True for _ in module.children()
    )
