"""The stack of running modules."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.capture.projected_tokens import ProjectedTokens
from regard.internals import NO_CALLBACK, compile_callback, run_uncompiled, without_torch_function


@dataclass(eq=False, slots=True, weakref_slot=True)
class Frame:
    """A running module.

    Attributes:
        module: the module.
        arguments: its positional arguments.
        options: its keyword arguments.
        outer: the frame of the module that called it.
        scored: whether two activations were multiplied in it since its latest softmax.
        grad: whether gradients were enabled when it began.
        attends: whether it has run attention of its own, by a softmax or a kernel.
        projected: what its linear layers returned; None if it needs not be known.
        has_layers: whether it has run linear layers. A module without any, such as one that gets
            queries, keys and values, knows neither sequences nor heads: its callers do.
    """

    module: nn.Module
    arguments: Sequence[Any]
    options: Mapping[str, Any]
    outer: "Frame | None" = None
    scored: bool = False
    grad: bool = field(default_factory=torch.is_grad_enabled)
    attends: bool = False
    projected: ProjectedTokens | None = None
    has_layers: bool = False
    _has_given: bool = False

    def add_projected(self, result: object, *, from_layer: bool = True) -> None:
        """Add what a linear layer returned, or a module that adds to what its layer returns."""
        self.has_layers |= from_layer
        if self.projected is not None:
            with without_torch_function():
                self.projected.add(result, self.given)

    def before_write(self, written: object) -> None:
        """Copy what is known of a tensor that is about to be written to."""
        if self.projected is not None and isinstance(written, Tensor):
            self.projected.before_write(written)

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
        for argument in (*self.arguments, *self.options.values()):
            flat += argument if isinstance(argument, list | tuple) else [argument]
        return [x for x in flat if isinstance(x, Tensor)]


class Hook:
    """A hook; in a copy of its module, as by `copy.deepcopy` or `torch.save`, it does nothing.

    torch.compile runs it uncompiled.

    Args:
        function: the function that is called.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any, **options: Any) -> Any:
        if compile_callback() in NO_CALLBACK:
            # Without another call in between: models have hundreds of hooks.
            return self._function(*args, **options)
        return run_uncompiled(self._function, *args, **options)

    def __deepcopy__(self, memo: object) -> "Hook":
        return Hook(_nothing)

    def __reduce__(self) -> tuple[Any, ...]:
        return Hook, (_nothing,)


def _nothing(*args: Any, **options: Any) -> None:
    """Do nothing."""


class ModuleStack:
    """The stack of running modules in the current thread.

    Modules have hooks while they are registered. Several contexts may register the same module,
    which has one pair of hooks until the last of them releases it.

    Args:
        began: called before a module runs outside of all others.
        ended: called with the frame of each finished module.

    Attributes:
        running: the running modules, the innermost last.
    """

    def __init__(self, began: Callable[[], None], ended: Callable[[Frame], None]) -> None:
        self._began, self._ended = began, ended
        self.running: list[Frame] = []
        self._thread = threading.get_ident()
        self._hooks: dict[nn.Module, ExitStack] = {}
        self._num_registered: Counter[nn.Module] = Counter()
        # Modules that ran without attention of their own, most of a model.
        self._others: set[nn.Module] = set()

    def register(self, modules: Iterable[nn.Module]) -> None:
        """Follow some modules."""
        for module in modules:
            self._num_registered[module] += 1
            if module not in self._hooks and not _is_part(module):
                before = module.register_forward_pre_hook(
                    Hook(self._begin), prepend=True, with_kwargs=True
                )
                after = module.register_forward_hook(Hook(self._end), always_call=True)
                hooks = self._hooks[module] = ExitStack()
                hooks.callback(before.remove)
                hooks.callback(after.remove)

    def release(self, modules: Iterable[nn.Module]) -> None:
        """Follow some modules no longer."""
        for module in modules:
            self._num_registered[module] -= 1
            if not self._num_registered[module]:
                del self._num_registered[module]
                self._others.discard(module)
                if module in self._hooks:
                    self._hooks.pop(module).close()
        self.running = [frame for frame in self.running if frame.module in self._hooks]

    def _begin(self, module: nn.Module, arguments: Any, options: Any) -> None:
        if threading.get_ident() == self._thread:
            if not self.running:
                self._began()
            outer = self.running[-1] if self.running else None
            projected = None if module in self._others else ProjectedTokens()
            self.running.append(Frame(module, arguments, options, outer, projected=projected))

    def _end(self, module: nn.Module, arguments: Any, output: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        is_innermost = bool(self.running) and self.running[-1].module is module
        if not (is_innermost or any(frame.module is module for frame in self.running)):
            # It was registered while it ran.
            return
        # Also pop frames that an exception left behind.
        while self.running:
            frame = self.running.pop()
            self._ended(frame)
            if not frame.attends:
                self._others.add(frame.module)
            elif not frame.has_layers and self.running:
                self.running[-1].attends = True
            if frame.module is module:
                if self.running:
                    # Adapters add to what a layer returns.
                    self.running[-1].add_projected(output, from_layer=frame.has_layers)
                break


def named_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the path of each module and the module, without the wrapper of a compiled model."""
    return getattr(model, "_orig_mod", model).named_modules()


def _is_part(module: nn.Module) -> bool:
    """Return whether a module is one of torch's without children, such as a linear layer."""
    return type(module).__module__.startswith("torch.nn.") and not any(
        True for _ in module.children()
    )
