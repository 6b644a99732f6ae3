"""The function mode that captures functions of torch."""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.attention import attend, attend_with_lse
from regard.capture import altered
from regard.capture.kernel_lse import KernelLse
from regard.capture.product import NarrowedScores, Product
from regard.capture.raw_call import CallListener, RawCall
from regard.capture.score_mask import ScoreMask
from regard.capture.softmax_tracker import WATCHED, SoftmaxTracker
from regard.internals import (
    entered_below,
    leave_graph,
    modes,
    run_uncompiled,
    without_torch_function,
)
from regard.patterns import Pattern, causal
from regard.positions import Bias


def _unasked(function: Any) -> Any:
    """Return a copy of a function of torch without its `has_torch_function` dispatch."""

    def has_torch_function(tensors: object) -> bool:
        return False

    asking = ("has_torch_function", "has_torch_function_unary")
    names = {**vars(sys.modules[function.__module__]), **dict.fromkeys(asking, has_torch_function)}
    made = FunctionType(function.__code__, names, argdefs=function.__defaults__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


# Function modes don't see calls inside a dispatched function, so run its code without dispatch.
_multi_head_attention_forward = _unasked(F.multi_head_attention_forward)
_BACKWARD = {
    one: _unasked(one) for one in (Tensor.backward, torch.autograd.backward, torch.autograd.grad)
}
"""A checkpointed model recomputes its calls in the backward pass."""


UNCOMPILED = (
    "watch, ablate and knock_out see only what runs uncompiled: compile without fullgraph=True, or "
    "call the original function"
)

_SIGNATURE = inspect.signature(F.multi_head_attention_forward)


class Mode(TorchFunctionMode):
    """Captures the calls of attention among all functions of torch in its thread.

    Args:
        catcher: the listener.

    Attributes:
        see: called after each function, with its arguments and its result.
    """

    def __init__(self, catcher: CallListener) -> None:
        super().__init__()
        self._catcher = catcher
        self.see: Callable[[Any, Sequence[Any], Mapping[str, Any], Any], None] | None = None
        self._tracker = SoftmaxTracker(
            lambda: catcher.running, self._narrow, self._multiplied, catcher.catch_lost
        )
        self._num_heads: int | None = None
        self._watched: dict[Any, Callable[..., Any]] = {
            F.scaled_dot_product_attention: self._scaled_dot_product_attention,
            F.multi_head_attention_forward: self._multi_head_attention,
            attend: self._attend,
            attend_with_lse: self._attend,
            **dict.fromkeys(WATCHED, self._tracker.run),
        }
        self._noticed = {*self._watched, *_BACKWARD}

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if torch.compiler.is_compiling():
            # What is compiled calls no functions that could be seen.
            leave_graph(UNCOMPILED)
        return run_uncompiled(self._handle, func, args, kwargs or {})

    def _handle(self, func: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        if self.see is None and not self._tracker.pending and self._is_plain(func, args):
            result = func(*args, **options)
            if func is F.linear and self._catcher.is_active:
                with without_torch_function():
                    self._catcher.running[-1].add_projected(result)
            return result
        result = self._run(func, args, options)
        if self.see is not None:
            self.see(func, args, options, result)
        return result

    def _is_plain(self, func: Any, args: Sequence[Any]) -> bool:
        """Return whether a function has nothing to do with attention, as most: a fast path."""
        if func is F.linear:
            return len(args) > 1 and type(args[1]) is nn.Parameter
        return func not in self._noticed

    def _run(self, func: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        if func in _BACKWARD:
            with self:
                return _BACKWARD[func](*args, **options)
        if func not in self._watched:
            if self._tracker.pending:
                return self._tracker.run(func, args, options)
            return func(*args, **options)
        if not self._catcher.is_active:
            return func(*args, **options)
        return self._watched[func](func, args, options)

    def entered(self) -> AbstractContextManager[None]:
        """Return a context in which it is on the stack, below listeners of higher rank."""
        rank = self._catcher.rank
        return entered_below(self, lambda one: isinstance(one, Mode) and one._catcher.rank > rank)

    def end(self, *, all_of_them: bool) -> None:
        """Report softmaxes that were not followed; see `SoftmaxTracker.end`."""
        self._tracker.end(all_of_them=all_of_them)

    def forget(self) -> None:
        """Drop references to the latest call."""
        self._tracker.forget()

    def _scaled_dot_product_attention(
        self, func: Any, args: Sequence[Any], options: Mapping[str, Any]
    ) -> Tensor:
        self._catcher.running[-1].attends = True
        with KernelLse() if self._catcher.wants_lse else nullcontext() as kernel:
            output, known = altered.run(func, args, options)
        lse = None if kernel is None else kernel.of(output)
        # nn.MultiheadAttention may add keys behind those that it was given.
        read = partial(_sdpa, output, lse, self._catcher.cross is False, *args, **options)
        call = self._catch("sdpa", known, read)
        if call is None:
            return output
        returned = call.returned.reshape(output.shape)
        altered.note(returned, call)
        return returned

    def _attend(self, func: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        result, known = altered.run(func, args, options)
        output, lse = result if func is attend_with_lse else (result, None)
        call = self._catch("attend", known, partial(_attended, output, lse, *args, **options))
        if call is None:
            return result
        returned = call.returned if lse is None else (call.returned, call.lse)
        altered.note(returned, call)
        return returned

    def _catch(
        self, kernel: str, known: RawCall | None, read: Callable[[], RawCall]
    ) -> RawCall | None:
        return self._catcher.catch(kernel, None, read if known is None else lambda: known)

    def _multi_head_attention(
        self, func: Any, args: Sequence[Any], options: Mapping[str, Any]
    ) -> Any:
        given = _SIGNATURE.bind(*args, **options).arguments
        # Other watchers see only the calls inside.
        watching = [self, *(mode for mode in modes() if isinstance(mode, Mode))]
        before = [mode._num_heads for mode in watching]
        for mode in watching:
            mode._num_heads = given["num_heads"]
            mode._catcher.cross = _memory(given["query"]) != _memory(given["key"])
        try:
            with self:
                return _multi_head_attention_forward(*args, **options)
        finally:
            for mode, number in zip(watching, before, strict=True):
                mode._num_heads, mode._catcher.cross = number, None

    def _narrow(
        self, scores: Tensor, key_axis: int, mask: ScoreMask | None
    ) -> NarrowedScores | None:
        return self._catcher.narrow(scores, key_axis, mask, self._num_heads)

    def _multiplied(self, product: Product) -> Tensor | None:
        return self._catcher.catch_product(product, self._num_heads)


def _memory(tensor: Tensor) -> tuple[object, ...]:
    """Return a key of a tensor's memory: PyTorch makes new Python objects for the same tensor."""
    return tensor.data_ptr(), tensor.shape, tensor.stride()


def _sdpa(
    output: Tensor,
    lse: Tensor | None,
    by_row: bool,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> RawCall:
    """Convert the arguments of scaled_dot_product_attention to a `RawCall`.

    With `by_row`, each query has the position of its row.
    """
    if query.is_nested:
        raise ValueError("nested tensors are not supported")
    leading, original = output.shape[:-3], output
    if attn_mask is not None and attn_mask.dim() > 3 and len(leading) > 1:
        attn_mask = attn_mask.expand(*leading, *attn_mask.shape[-3:]).flatten(end_dim=-4)
    query, key, value, output = (_with_four_axes(x, leading) for x in (query, key, value, output))
    if attn_mask is not None and attn_mask.dim() == 3 and len(leading) == 0:
        # The axis before the queries is the batch.
        attn_mask = attn_mask[:, None]
    return RawCall(
        kernel="sdpa",
        query=query,
        key=key,
        value=value,
        output=output,
        original=original,
        mask=attn_mask,
        pattern=causal() if is_causal else None,
        first_query=0 if is_causal or by_row else None,
        placed=by_row,
        scale=scale,
        dropout=dropout_p,
        kernel_lse=lse,
    )


def _with_four_axes(tensor: Tensor, leading: Sequence[int]) -> Tensor:
    """Return a tensor as [batch, heads, sequence, dim]; one with three axes has one head."""
    if tensor.dim() <= 3:
        return tensor[None, None] if tensor.dim() == 2 else tensor[:, None]
    return tensor.expand(*leading, *tensor.shape[-3:]).flatten(end_dim=-4)


def _attended(
    output: Tensor,
    lse: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    pattern: Pattern | None,
    bias: Bias | Tensor | None,
    scale: float | None,
    dropout: float,
    positions: int | Tensor | None,
    backend: str,
    group: object = None,
) -> RawCall:
    """Convert the arguments of `attend` to a `RawCall`.

    Raises:
        ValueError: other processes have a part of its keys.
    """
    if group is not None:
        raise ValueError("the sequence is sharded over processes, its keys are not all here")
    numbers = isinstance(bias, Tensor)
    by_pattern = pattern is not None and not pattern.key_only
    return RawCall(
        kernel="attend",
        query=query,
        key=key,
        value=value,
        output=output,
        original=output,
        pattern=pattern,
        first_query=positions,
        placed=positions is not None or by_pattern or bias is not None,
        bias=None if numbers else bias,
        added=bias if numbers else None,
        scale=scale,
        dropout=dropout,
        lse=lse,
    )
