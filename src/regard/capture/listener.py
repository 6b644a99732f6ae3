"""The base class of everything that sees or changes the attention of a running model."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import cache
from types import TracebackType
from typing import Any, NamedTuple, Self

from torch import Tensor, nn

from regard.capture.call import KernelCall
from regard.capture.capture import Capture
from regard.capture.module_stack import Frame, named_modules
from regard.capture.product import MaskedScores, Product
from regard.capture.reading import Reading
from regard.capture.score_mask import ScoreMask
from regard.hf.use import CROSS


class Rank(IntEnum):
    """The order in which listeners receive a call: each gets what those before it made of it."""

    KNOCK_OUT = 0
    PATCH = 1
    ABLATE = 2
    WATCH = 3


class CallSite(NamedTuple):
    """The module that calls attention.

    Attributes:
        name: its path in the model.
        module: the module.
        frame: its run.
        cross: whether it is cross-attention; None if unknown.
    """

    name: str
    module: nn.Module
    frame: Frame
    cross: bool | None


class Listener(ABC):
    """Receives the calls of a model's attention in the thread in which its context is entered.

    Contexts may be nested, and left, in any order; all of a thread share one `Capture`.

    Args:
        model: the model.
    """

    rank: Rank
    observe: Callable[[Any, Sequence[Any], Mapping[str, Any], Any], None] | None = None
    """Called after each function of torch, with its arguments and its result."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.names: dict[nn.Module, str] = {}

    def __enter__(self) -> Self:
        self.names = {module: name for name, module in named_modules(self.model)}
        self.capture = Capture.of_thread()
        self.capture.add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.capture.remove(self)
        self.names = {}

    @property
    def wants_lse(self) -> bool:
        """Whether it needs the log-sum-exp of kernels that don't return it."""
        return False

    @property
    def is_active(self) -> bool:
        """Whether it receives calls now."""
        return True

    @property
    def running(self) -> Sequence[Frame]:
        """The running modules of its model, the innermost last."""
        return [frame for frame in self.capture.running if frame.module in self.names]

    def site(self, module: nn.Module | None) -> CallSite | None:
        """Return the site of a call, or None if the listener does not receive it.

        Args:
            module: the module of the call; by default the innermost that runs.
        """
        if not self.is_active:
            return None
        frames = reversed(self.capture.running)
        if module is None:
            frame = next((frame for frame in frames if frame.module in self.names), None)
        else:
            frame = next((frame for frame in frames if frame.module is module), None)
            frame = Frame(module, (), {}) if frame is None else frame
        name = None if frame is None else self.names.get(frame.module)
        if frame is None or name is None or not self.selects(name, frame.module):
            return None
        return CallSite(name, frame.module, frame, self._is_cross(name, frame.module))

    def _is_cross(self, name: str, module: nn.Module) -> bool | None:
        """Return whether a module is cross-attention; None if unknown."""
        if self.capture.cross is not None:
            return self.capture.cross
        if getattr(module, "is_cross_attention", False) is True:
            return True
        return _has_cross_name(name) or None

    @abstractmethod
    def selects(self, name: str, module: nn.Module) -> bool:
        """Return whether the listener receives the calls of a module."""

    @abstractmethod
    def on_call(
        self, kernel: str, module: nn.Module | None, read: Callable[[], KernelCall]
    ) -> KernelCall | None:
        """Receive a call of a kernel; see `Receiver.on_call`."""

    @abstractmethod
    def on_product(
        self, product: Product, read: Callable[[Sequence[Frame]], Reading]
    ) -> Tensor | None:
        """Receive a product of written-down weights and values.

        Args:
            product: the product.
            read: returns its named axes, from the running modules.

        Returns:
            The replacement of `product.result`, or None.
        """

    @abstractmethod
    def on_untracked(self, frame: Frame, reason: str) -> None:
        """Receive attention of a module that could not be followed."""

    def mask_scores(
        self, scores: Tensor, key_axis: int, mask: ScoreMask | None
    ) -> MaskedScores | None:
        """Mask pairs before the softmax of the running module.

        Args:
            scores: the scores.
            key_axis: the axis of the keys.
            mask: which pairs are masked already; None if unknown.
        """
        return None

    def on_run_end(self) -> None:
        """Receive the end of the outermost running module of the model."""
        return


@cache
def _has_cross_name(name: str) -> bool:
    """Return whether the path of a module says that it is cross-attention."""
    return any(part in name.lower() for part in CROSS)
