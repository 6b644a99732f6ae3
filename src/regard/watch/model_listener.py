"""Being told of the attention of a model: what all have in common who are."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self

import torch
from torch import Tensor, nn

from regard.hf.use import CROSS
from regard.watch import interface
from regard.watch.internals import modes
from regard.watch.mode import Mode
from regard.watch.module_stack import Frame, ModuleStack
from regard.watch.product import NarrowedScores, Product
from regard.watch.raw_call import Rank, RawCall


class ModelListener(ABC):
    """Is told of the attention of a model in the thread in which it is made; see `CallListener`.

    Args:
        model: the model. It has hooks for as long as this is entered.
    """

    rank: Rank

    def __init__(self, model: nn.Module) -> None:
        self.cross: bool | None = None
        self._places = ModuleStack(model, self._ended)
        self._num_pauses = 0
        self._mode = Mode(self)
        self._compiled = any(_is_compiled(module) for module in model.modules())
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as entering:
            if self._compiled:
                # Compiled code has no functions left that could be seen.
                entering.enter_context(torch.compiler.set_stance("force_eager"))
            entering.enter_context(self._places)
            entering.enter_context(interface.subscribe(self))
            if "torch.nn.attention.flex_attention" in sys.modules:
                from regard.watch import flex

                entering.enter_context(flex.subscribe(self))
            entering.enter_context(self._mode.entered())
            self._entered = entering.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entered.close()
        self._mode.forget()

    @property
    def is_active(self) -> bool:
        """Whether it is told of calls now."""
        return not self._num_pauses and self._places.current is not None

    @property
    def running(self) -> Sequence[Frame]:
        """The modules that are running, the innermost last."""
        return self._places.running

    @contextmanager
    def paused(self) -> Generator[None]:
        """Look away while something runs that is caught as a whole."""
        self._num_pauses += 1
        # Without the mode, nothing is slower, and what was compiled without it fits.
        on_top = modes()[-1:] == [self._mode]
        if on_top:
            self._mode.__exit__(None, None, None)
        try:
            yield
        finally:
            if on_top:
                self._mode.__enter__()
            self._num_pauses -= 1

    @abstractmethod
    def catch(
        self, kernel: str, module: nn.Module | None, read: Callable[[], RawCall]
    ) -> RawCall | None:
        """Take a call down, or alter it; see `CallListener.catch`."""

    def narrow(self, scores: Tensor, key_axis: int, num_heads: int | None) -> NarrowedScores | None:
        """Forbid pairs before a softmax; see `CallListener.narrow`. None are, unless overridden."""
        return None

    @abstractmethod
    def catch_product(self, product: Product, num_heads: int | None) -> Tensor | None:
        """Take down weights that were multiplied; see `CallListener.catch_product`."""

    @abstractmethod
    def catch_lost(self, frame: Frame, reason: str) -> None:
        """Take down that there may be attention that can't be looked into."""

    def is_cross(self, name: str, module: nn.Module) -> bool | None:
        """Say whether a module looks at another sequence; None if that isn't known."""
        if self.cross is None and (
            any(part in name.lower() for part in CROSS)
            or getattr(module, "is_cross_attention", False) is True
        ):
            return True
        return self.cross

    def _ended(self, frame: Frame) -> None:
        """Tell of what was not followed in a module that has ended."""
        if not self._num_pauses:
            self._mode.end(all_of_them=not self.running)


def _is_compiled(module: nn.Module) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod")
