"""The base class of listeners to the attention of a model."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self

import torch
from torch import Tensor, nn

from regard.capture import interface
from regard.capture.hook import Hook
from regard.capture.mode import UNCOMPILED, Mode
from regard.capture.module_stack import Frame, ModuleStack
from regard.capture.product import NarrowedScores, Product
from regard.capture.raw_call import Rank, RawCall
from regard.capture.score_mask import ScoreMask
from regard.hf.use import CROSS
from regard.internals import modes, run_uncompiled, skip_compile


class ModelListener(ABC):
    """Listens to the attention of a model in the current thread; see `CallListener`.

    Args:
        model: the model. It has hooks inside the context.
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
        if "torch._dynamo" in sys.modules:
            skip_compile(run_uncompiled)
            for function in (Mode.__torch_function__, Hook.__call__, interface.wrapped_attention):
                skip_compile(function, UNCOMPILED)
        with ExitStack() as entering:
            if self._compiled:
                # Compiled code calls no functions that a mode could see.
                entering.enter_context(torch.compiler.set_stance("force_eager"))
            entering.enter_context(self._places)
            entering.enter_context(interface.subscribe(self))
            if "torch.nn.attention.flex_attention" in sys.modules:
                from regard.capture import flex

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
    def wants_lse(self) -> bool:
        """Whether it wants the log-sum-exp of kernels that don't return it."""
        return False

    @property
    def is_active(self) -> bool:
        """Whether it receives calls now."""
        return not self._num_pauses and self._places.current is not None

    @property
    def running(self) -> Sequence[Frame]:
        """The running modules, the innermost last."""
        return self._places.running

    @contextmanager
    def paused(self) -> Generator[None]:
        """Pause inside a call that is captured as a whole."""
        self._num_pauses += 1
        # Take the mode off: that is faster, and keeps compiled code valid.
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
        """Record or alter a call; see `CallListener.catch`."""

    def narrow(
        self, scores: Tensor, key_axis: int, mask: ScoreMask | None, num_heads: int | None
    ) -> NarrowedScores | None:
        """Mask pairs before a softmax; see `CallListener.narrow`. None by default."""
        return None

    @abstractmethod
    def catch_product(self, product: Product, num_heads: int | None) -> Tensor | None:
        """Record a product of weights and values; see `CallListener.catch_product`."""

    @abstractmethod
    def catch_lost(self, frame: Frame, reason: str) -> None:
        """Record attention that could not be captured."""

    def is_cross(self, name: str, module: nn.Module) -> bool | None:
        """Return whether a module is cross-attention; None if unknown."""
        if self.cross is None and (
            any(part in name.lower() for part in CROSS)
            or getattr(module, "is_cross_attention", False) is True
        ):
            return True
        return self.cross

    def _ended(self, frame: Frame) -> None:
        """Report softmaxes that were not followed in a finished module."""
        if not self._num_pauses:
            self._mode.end(all_of_them=not self.running)


def _is_compiled(module: nn.Module) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod")
