"""One capture for each thread: it sees every call of attention, and passes it to the listeners.

    torch function ──► Capture ──► softmax_tracker ──► product ──┐
    transformers'      │  one function mode                      ├──► listeners, by rank:
    interface ─────────┤  one hook pair per module               │    knock out, ablate, watch
    flex_attention ────┴─────────────────────────────► call ─────┘

There is one capture per thread, not one per context, because contexts meet in the same calls: what
`ablate` makes of a call is what `watch` sees, and each function of torch is dispatched once. The
first listener of a thread starts it, the last one to leave ends it, in any order. A listener knows
the modules of its own model only, so that `watch(model.model)` and `ablate(model)` get along.
"""

import inspect
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.attention import attend, attend_with_lse
from regard.capture.call import KernelCall
from regard.capture.functions import WRITES
from regard.capture.interface import wrapped_attention
from regard.capture.kernels import KernelLse, attend_call, sdpa_call
from regard.capture.masks import Masks
from regard.capture.module_stack import Frame, Hook, ModuleStack
from regard.capture.parse import autocast_inputs
from regard.capture.product import MaskedScores, Product
from regard.capture.reading import Reading, read_axes
from regard.capture.score_mask import ScoreMask
from regard.capture.softmax_tracker import WATCHED, SoftmaxTracker
from regard.internals import (
    NO_CALLBACK,
    compile_callback,
    leave_graph,
    modes,
    on_mode_stack,
    run_uncompiled,
    skip_compile,
    without_torch_function,
)

if TYPE_CHECKING:
    from regard.capture.listener import Listener


def _undispatched(function: Any) -> Any:
    """Return a copy of a function of torch without its `has_torch_function` dispatch."""

    def has_torch_function(tensors: object) -> bool:
        return False

    asking = ("has_torch_function", "has_torch_function_unary")
    names = {**vars(sys.modules[function.__module__]), **dict.fromkeys(asking, has_torch_function)}
    copied = FunctionType(function.__code__, names, argdefs=function.__defaults__)
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


# Function modes don't see calls inside a dispatched function, so run its code without dispatch.
_multi_head_attention_forward = _undispatched(F.multi_head_attention_forward)
_BACKWARD = {
    function: _undispatched(function)
    for function in (Tensor.backward, torch.autograd.backward, torch.autograd.grad)
}
"""A checkpointed model recomputes its calls in the backward pass."""


UNCOMPILED = (
    "watch, ablate and knock_out see only what runs uncompiled: compile without fullgraph=True, or "
    "call the original function"
)

_SIGNATURE = inspect.signature(F.multi_head_attention_forward)


class Capture(TorchFunctionMode):
    """Sees the calls of attention of a thread, for all listeners in it.

    Attributes:
        masks: converts masks, and caches the latest, for all listeners.
        num_heads: the number of heads of the running nn.MultiheadAttention, if one runs.
        cross: whether that is cross-attention; None if none runs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.masks = Masks()
        self.num_heads: int | None = None
        self.cross: bool | None = None
        self._listeners: list[Listener] = []
        self._observers: list[Callable[..., None]] = []
        self._stack = ModuleStack(lambda: self.masks.forget(), self._ended)
        self._tracker = SoftmaxTracker(
            lambda: self.running, self._mask_scores, self._on_product, self._on_untracked
        )

        # How it was started, and whether it is paused.
        self._num_pauses = 0
        self._started = ExitStack()
        self._patched: set[str] = set()
        self._is_eager = False

        # The functions of torch that may be attention, or begin a backward pass.
        self._handlers: dict[Any, Callable[..., Any]] = {
            F.scaled_dot_product_attention: self._scaled_dot_product_attention,
            F.multi_head_attention_forward: self._multi_head_attention,
            attend: self._attend,
            attend_with_lse: self._attend,
            **dict.fromkeys(WATCHED, self._tracker.run),
        }
        self._noticed = {*self._handlers, *_BACKWARD, *WRITES}

    # Listeners.

    @staticmethod
    def of_thread() -> "Capture":
        """Return the capture of this thread, a new one for its first listener."""
        capture: Capture | None = getattr(_thread, "capture", None)
        if capture is None or not capture._listeners:
            capture = _thread.capture = Capture()
        return capture

    def add(self, listener: "Listener") -> None:
        """Pass calls to a listener, after those of the same or a lower rank."""
        if not self._listeners:
            self._started.enter_context(on_mode_stack(self))
        members = [*self._listeners, listener]
        self._set_listeners(sorted(members, key=lambda member: member.rank))
        try:
            self._stack.register(listener.names)
            self._patch()
            if any(map(_is_compiled, listener.model.modules())):
                self._run_eagerly()
        except BaseException:
            self.remove(listener)
            raise

    def remove(self, listener: "Listener") -> None:
        """Pass no more calls to a listener; the last one to leave ends the capture."""
        self._set_listeners([member for member in self._listeners if member is not listener])
        self._stack.release(listener.names)
        if not self._listeners:
            self._started.close()
            self._tracker.forget()
            self.masks = Masks()

    def _set_listeners(self, listeners: "list[Listener]") -> None:
        # A new list: a call may be on its way through the old one.
        self._listeners = listeners
        self._observers = [
            listener.observe for listener in listeners if listener.observe is not None
        ]

    def _patch(self) -> None:
        """Patch what was imported since, too: transformers, FlexAttention and the compiler."""
        if "torch._dynamo" in sys.modules:
            skip_compile(run_uncompiled)
            for function in (Capture.__torch_function__, Hook.__call__, wrapped_attention):
                skip_compile(function, UNCOMPILED)
        patches = [("transformers.modeling_utils", "interface")]
        patches += [("torch.nn.attention.flex_attention", "flex")]
        for module, name in patches:
            if module in sys.modules and name not in self._patched:
                patch = import_module(f"regard.capture.{name}").PATCH
                self._started.enter_context(patch.subscribed(self))
                self._patched.add(name)

    def _run_eagerly(self) -> None:
        """Run compiled models uncompiled: compiled code calls no functions that could be seen."""
        if not self._is_eager:
            self._started.enter_context(torch.compiler.set_stance("force_eager"))
            self._is_eager = True

    @property
    def running(self) -> Sequence[Frame]:
        """The running modules of all listeners' models, the innermost last."""
        return self._stack.running

    @property
    def wants_lse(self) -> bool:
        """Whether a listener needs the log-sum-exp of kernels that don't return it."""
        return any(listener.wants_lse for listener in self._listeners)

    @property
    def _is_active(self) -> bool:
        if self._num_pauses or not self._stack.running:
            return False
        return any(listener.is_active for listener in self._listeners)

    @contextmanager
    def paused(self) -> Generator[None]:
        """Pause inside a call that is captured as a whole."""
        self._num_pauses += 1
        # Take the mode off: that is faster, and keeps compiled code valid.
        on_top = modes()[-1:] == [self]
        if on_top:
            self.__exit__(None, None, None)
        try:
            yield
        finally:
            if on_top:
                self.__enter__()
            self._num_pauses -= 1

    # Calls, on their way to the listeners.

    def on_call(
        self, kernel: str, module: nn.Module | None, read: Callable[[], KernelCall]
    ) -> KernelCall | None:
        """Receive a call of a kernel; see `Receiver.on_call`."""
        call: KernelCall | None = None
        changed: KernelCall | None = None
        if self._num_pauses:
            return None

        def read_once() -> KernelCall:
            nonlocal call
            if call is None:
                call = autocast_inputs(read())
            return call

        for listener in self._listeners:
            new = listener.on_call(kernel, module, read_once)
            if new is not None:
                call = changed = new
        return changed

    def _on_product(self, product: Product) -> Tensor | None:
        """Receive a product of weights and values; return another result for the model, or None."""
        readings: dict[tuple[Frame, ...], Reading] = {}

        def read_axes_once(running: Sequence[Frame]) -> Reading:
            key = (*running,)
            if key not in readings:
                readings[key] = read_axes(product, running, self.num_heads)
            return readings[key]

        changed: Tensor | None = None
        for listener in self._listeners:
            result = listener.on_product(product, read_axes_once)
            if result is not None:
                changed = result
                product = replace(product, result=result)
        return changed

    def _mask_scores(
        self, scores: Tensor, key_axis: int, mask: ScoreMask | None
    ) -> dict[object, MaskedScores]:
        """Return the scores as each listener that masks pairs leaves them, the last one last."""
        parts: dict[object, MaskedScores] = {}
        for listener in self._listeners:
            part = listener.mask_scores(scores, key_axis, mask)
            if part is not None:
                parts[listener] = part
                scores = part.scores
                if mask is not None:
                    masked = part.masked if mask.masked is None else mask.masked | part.masked
                    mask = replace(mask, masked=masked)
        return parts

    def _on_untracked(self, frame: Frame, reason: str) -> None:
        # Watchers first: interventions raise.
        for listener in reversed(self._listeners):
            own: Frame | None = frame
            while own is not None and own.module not in listener.names:
                own = own.outer
            if own is not None:
                listener.on_untracked(own, reason)

    def _ended(self, frame: Frame) -> None:
        """Report softmaxes that were not followed in a finished module, and finished runs."""
        if not self._num_pauses:
            self._tracker.end(all_of_them=not self._stack.running)
        outer = frame.outer
        for listener in self._listeners:
            is_outermost = outer is None or outer.module not in listener.names
            if is_outermost and frame.module in listener.names and not listener.running:
                listener.on_run_end()

    # Functions of torch.

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if torch.compiler.is_dynamo_compiling():
            # What is compiled calls no functions that could be seen.
            leave_graph(UNCOMPILED)
        # Most functions have nothing to do with attention, and this is called for each of them.
        if (
            func in self._noticed
            or self._tracker.tracked
            or self._observers
            or compile_callback() not in NO_CALLBACK
        ):
            return run_uncompiled(self._handle, func, args, kwargs or {})
        return func(*args, **kwargs) if kwargs else func(*args)

    def _handle(self, func: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        observers = self._observers
        if func in WRITES and options.get("inplace", True):
            with without_torch_function():
                for frame in self._stack.running:
                    frame.before_write(next(iter(args), None))
        if not (observers or self._tracker.tracked) and self._is_plain(func, args):
            result = func(*args, **options)
            if func is F.linear and self._stack.running and not self._num_pauses:
                self._stack.running[-1].add_projected(result)
            return result
        result = self._run(func, args, options)
        for observe in observers:
            observe(func, args, options, result)
        return result

    def _is_plain(self, func: Any, args: Sequence[Any]) -> bool:
        """Return whether a function has nothing to do with attention, as most: a fast path."""
        if func is F.linear:
            return len(args) > 1 and type(args[1]) is nn.Parameter
        return func not in self._handlers and func not in _BACKWARD

    def _run(self, func: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        if func in _BACKWARD:
            with self:
                return _BACKWARD[func](*args, **options)
        if func not in self._handlers:
            if self._tracker.tracked:
                return self._tracker.run(func, args, options)
            return func(*args, **options)
        if not self._is_active:
            return func(*args, **options)
        return self._handlers[func](func, args, options)

    def _scaled_dot_product_attention(
        self, func: Any, args: Sequence[Any], options: Mapping[str, Any]
    ) -> Tensor:
        self.running[-1].attends = True
        with KernelLse() if self.wants_lse else nullcontext() as kernel:
            output = func(*args, **options)
        lse = None if kernel is None else kernel.of(output)
        # nn.MultiheadAttention may add keys behind those that it was given.
        read = partial(sdpa_call, output, lse, self.cross is False, *args, **options)
        call = self.on_call("sdpa", None, read)
        return output if call is None else call.returned.reshape(output.shape)

    def _attend(self, func: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        result = func(*args, **options)
        output, lse = result if func is attend_with_lse else (result, None)
        call = self.on_call("attend", None, partial(attend_call, output, lse, *args, **options))
        if call is None:
            return result
        return call.returned if lse is None else (call.returned, call.lse)

    def _multi_head_attention(
        self, func: Any, args: Sequence[Any], options: Mapping[str, Any]
    ) -> Any:
        bound = _SIGNATURE.bind(*args, **options).arguments
        before = self.num_heads, self.cross
        self.num_heads = bound["num_heads"]
        self.cross = _memory(bound["query"]) != _memory(bound["key"])
        try:
            with self:
                return _multi_head_attention_forward(*args, **options)
        finally:
            self.num_heads, self.cross = before


_thread = threading.local()
"""The `capture` of each thread."""


def _memory(tensor: Tensor) -> tuple[object, ...]:
    """Return a key of a tensor's memory: PyTorch makes new Python objects for the same tensor."""
    return tensor.data_ptr(), tensor.shape, tensor.stride()


def _is_compiled(module: nn.Module) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod")
