"""Follow a softmax until it is multiplied with values: attention without a fused kernel.

Weights are followed through functions of torch (reshaping, elementwise changes, dropout) until a
product sums over their keys; the multiplied tensor has the weights. A probe goes with them, a
tensor of the same shape without memory, whose strides mark the key axis.
"""

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.watch import altered
from regard.watch.functions import (
    BEGINS,
    COPIES,
    DROPOUT,
    EXP,
    GATHERS,
    IN_PLACE,
    LOG_SOFTMAX,
    MULTIPLIES,
    SHAPES,
    SUMS,
)
from regard.watch.module_stack import Frame
from regard.watch.product import (
    PRODUCTS,
    NarrowedScores,
    Product,
    operands,
    probe_of,
    read_product,
    read_sum,
)

WATCHED = BEGINS | PRODUCTS
"""The functions that make weights, and those that multiply them."""


@dataclass(eq=False)
class _Start:
    """A call of a function that makes weights.

    Attributes:
        function: "softmax", "log_softmax" or "exp".
        shape: the shape of its result.
        frame: the running module.
        scored: whether its scores may be products of queries and keys; then it must be reported if
            it is not followed.
        followed: maximum number of its weights that were multiplied together; 0 if none.
        alive: number of tensors derived from it.
        narrowed: its masked scores, if pairs were masked.
    """

    function: str
    shape: torch.Size
    frame: Frame
    scored: bool
    followed: int = 0
    alive: int = 0
    narrowed: NarrowedScores | None = None


@dataclass(eq=False)
class _Weights:
    """A tensor between a softmax and a product.

    Attributes:
        starts: the softmaxes that it was made from.
        clean: the same without dropout, if there was any.
        probe: marks the key axis; None if unknown. See `probe_of`.
        factor: weights and values, if it is their elementwise product, not summed yet.
        logarithm: whether it is the logarithm of weights.
    """

    starts: frozenset[_Start]
    clean: Tensor | None
    probe: Tensor | None
    factor: tuple[Tensor, Tensor] | None = None
    logarithm: bool = False


class SoftmaxTracker:
    """Follows softmaxes until they are multiplied with values.

    Args:
        running: returns the running modules, the innermost last.
        narrow: may mask pairs before a softmax.
        found: called with each product of weights and values; may return another result.
        lost: called with each softmax that was not followed to a product.
    """

    def __init__(
        self,
        running: Callable[[], Sequence[Frame]],
        narrow: Callable[[Tensor, int], NarrowedScores | None],
        found: Callable[[Product], Tensor | None],
        lost: Callable[[Frame, str], None],
    ) -> None:
        self._running, self._narrow, self._found, self._lost = running, narrow, found, lost
        self._tracked: dict[int, tuple[weakref.ref[Tensor], _Weights]] = {}
        self._starts: list[_Start] = []

    @property
    def pending(self) -> bool:
        """Whether there is a softmax to follow."""
        return bool(self._tracked)

    def run(self, function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Run a watched function."""
        if function in PRODUCTS:
            return self._multiply(function, arguments, options)
        mine = self._weights_in(arguments, options) if self._tracked else []
        begins = function in BEGINS and (not mine or function not in EXP)
        if mine and not begins:
            return self._follow(function, arguments, options, mine)
        if not begins:
            return function(*arguments, **options)
        # The input of a softmax is scores, even if it was made from weights.
        for start in {start for _, one in mine for start in one.starts if start.scored}:
            start.scored, self._running()[-1].scored = False, True
        narrowed, arguments, options = self._narrowed(function, arguments, options)
        result = function(*arguments, **options)
        if narrowed is not None:
            result = result.masked_fill(narrowed.empty, 0.0)
        self._begin(function, arguments, options, result, narrowed)
        return result

    def _narrowed(
        self, function: Any, arguments: Sequence[Any], options: Mapping[str, Any]
    ) -> tuple[NarrowedScores | None, Sequence[Any], Mapping[str, Any]]:
        """Let listeners mask pairs in the scores of a softmax."""
        axis = _softmax_axis(arguments, options)
        scores = arguments[0] if arguments else options.get("input")
        plain = function not in EXP and function not in LOG_SOFTMAX
        if not (plain and self._running()[-1].scored and axis is not None) or scores is None:
            return None, arguments, options
        narrowed = self._narrow(scores, axis)
        if narrowed is None:
            return None, arguments, options
        if arguments:
            return narrowed, (narrowed.scores, *arguments[1:]), options
        return narrowed, arguments, {**options, "input": narrowed.scores}

    def end(self, *, all_of_them: bool) -> None:
        """Report softmaxes without living tensors, or all that were not multiplied."""
        for start in self._starts:
            gone = all_of_them or not start.alive
            if gone and start.scored and not start.followed:
                sizes = " × ".join(map(str, start.shape))
                reason = f"a {start.function} of {sizes} was not followed to a product with values"
                self._lost(start.frame, reason)
        self._starts = [] if all_of_them else [start for start in self._starts if start.alive]
        if all_of_them:
            self._tracked.clear()

    def forget(self) -> None:
        """Drop all references."""
        self._tracked.clear()
        self._starts.clear()

    def _begin(
        self,
        function: Any,
        arguments: Sequence[Any],
        options: Mapping[str, Any],
        result: Any,
        narrowed: NarrowedScores | None,
    ) -> None:
        frame = self._running()[-1]
        if not isinstance(result, Tensor) or result.dim() < 2 or not result.is_floating_point():
            return
        name = "exp" if function in EXP else "softmax"
        axis: Any = -1
        if name == "softmax":
            name = "log_softmax" if function in LOG_SOFTMAX else name
            axis = _softmax_axis(arguments, options)
            if axis is None:
                return
        elif not frame.scored:
            # Most exponentials are not attention.
            return
        scored = frame.scored and name == "softmax"
        start = _Start(name, result.shape, frame, scored, narrowed=narrowed)
        if name != "exp":
            frame.scored = False
        self._starts.append(start)
        probe = probe_of(result.shape, axis)
        logarithm = name == "log_softmax"
        self._track(result, _Weights(frozenset([start]), None, probe, logarithm=logarithm))

    def _track(self, tensor: Tensor, weights: _Weights) -> None:
        number = id(tensor)
        before = self._tracked.pop(number, None)
        for start in weights.starts:
            start.alive += 1
        if before is not None:
            self._release(before[1])

        def gone(reference: weakref.ref[Tensor]) -> None:
            entry = self._tracked.get(number)
            if entry is not None and entry[0] is reference:
                self._release(self._tracked.pop(number)[1])

        self._tracked[number] = (weakref.ref(tensor, gone), weights)

    @staticmethod
    def _release(weights: _Weights) -> None:
        for start in weights.starts:
            start.alive -= 1

    def _weights_in(
        self, arguments: Sequence[Any], options: Mapping[str, Any]
    ) -> list[tuple[Tensor, _Weights]]:
        """Return the weights among the arguments of a function."""
        found: list[tuple[Tensor, _Weights]] = []
        for one in _flat((*arguments, *options.values())):
            entry = self._tracked.get(id(one))
            if entry is not None and entry[0]() is one:
                found.append((one, entry[1]))
        return found

    def _follow(
        self,
        function: Any,
        arguments: Sequence[Any],
        options: Mapping[str, Any],
        mine: list[tuple[Tensor, _Weights]],
    ) -> Any:
        tensor, weights = mine[0]
        if function in SUMS:
            result, noted = altered.run(function, arguments, options)
            if weights.factor is None or not isinstance(result, Tensor):
                return result
            factor = weights.factor
            return self._multiplied(
                lambda one: read_sum(*factor, tensor, arguments, options, one), result, noted, mine
            )
        if function in DROPOUT:
            clean = weights.clean
            if clean is None and _drops(arguments, options):
                # Dropout in place overwrites the weights.
                clean = tensor.clone() if _is_in_place(arguments, options) else tensor
            result = function(*arguments, **options)
            self._track_all(result, _Weights(weights.starts, clean, weights.probe))
            return result

        if function in EXP and not weights.logarithm:
            return function(*arguments, **options)
        logarithm = weights.logarithm and function not in EXP
        target = arguments[0] if arguments else None
        clean = None
        if any(one.clean is not None for _, one in mine):
            try:
                clean = self._without_dropout(function, arguments, options)
            except RuntimeError:
                # The clean weights have other strides, which don't allow this view.
                return function(*arguments, **options)
        result = function(*arguments, **options)
        if function in IN_PLACE:
            result_is: Any = target
            probe = weights.probe if target is tensor else None
        else:
            result_is = result
            probe = _moved(function, arguments, options, tensor, weights.probe, result)
        starts = frozenset(start for _, one in mine for start in one.starts)
        factor = None
        if function in MULTIPLIES and isinstance(result, Tensor):
            others = [x for x in arguments if isinstance(x, Tensor) and x is not tensor]
            if len(mine) == 1 and others and _spreads(tensor, result):
                factor = (tensor, others[0])
        self._track_all(result_is, _Weights(starts, clean, probe, factor, logarithm), probe)
        return result

    def _without_dropout(
        self, function: Any, arguments: Sequence[Any], options: Mapping[str, Any]
    ) -> Any:
        """Return the result of a function on weights without dropout."""

        def clean(one: Any) -> Any:
            if isinstance(one, list | tuple):
                return type(one)(map(clean, one))
            entry = self._tracked.get(id(one)) if isinstance(one, Tensor) else None
            if entry is None or entry[0]() is not one or entry[1].clean is None:
                return one
            # Copy before an in-place function.
            return entry[1].clean.clone() if function in IN_PLACE else entry[1].clean

        arguments = [clean(one) for one in arguments]
        result = function(*arguments, **{name: clean(one) for name, one in options.items()})
        return arguments[0] if function in IN_PLACE else result

    def _track_all(self, result: Any, weights: _Weights, probes: Any = None) -> None:
        """Track the results of a function."""
        if isinstance(result, Tensor):
            if result.is_floating_point() and result.dim() >= 2:
                self._track(result, weights)
        elif isinstance(result, list | tuple):
            for number, part in enumerate(result):
                clean = weights.clean[number] if weights.clean is not None else None
                probe = probes[number] if probes is not None else None
                kept = _Weights(weights.starts, clean, probe, logarithm=weights.logarithm)
                self._track_all(part, kept)

    def _multiply(self, function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        mine = self._weights_in(arguments, options) if self._tracked else []
        result, noted = altered.run(function, arguments, options)
        if not isinstance(result, Tensor):
            return result
        if not mine:
            factors = operands(function, arguments, options)
            if len(factors) != 2 or any(map(_is_parameter, factors)):
                return result
            frame = self._running()[-1]
            if function is not F.linear or not _is_cast(factors[1], frame.module):
                frame.scored = True
            return result
        if function is F.linear and _is_parameter(operands(function, arguments, options)[1]):
            # Heads are mixed by parameters (talking heads).
            (tensor, weights), *_ = mine
            clean = None
            if weights.clean is not None:
                clean = self._without_dropout(function, arguments, options)
            probe = weights.probe if result.shape == tensor.shape else None
            self._track_all(result, _Weights(weights.starts, clean, probe))
            return result
        if len(mine) > 1:
            # Weights times weights: follow the product.
            starts = frozenset(start for _, one in mine for start in one.starts)
            self._track_all(result, _Weights(starts, None, None))
            return result
        (tensor, weights), *_ = mine
        if weights.logarithm:
            return result
        clean, probe = weights.clean, weights.probe
        return self._multiplied(
            lambda one: read_product(function, arguments, options, one, tensor, clean, probe),
            result,
            noted,
            mine,
        )

    def _multiplied(
        self,
        read: Callable[[Tensor], Product | None],
        result: Tensor,
        noted: Tensor | None,
        mine: list[tuple[Tensor, _Weights]],
    ) -> Tensor:
        """Report a product; return the result for the model.

        Args:
            read: reads a product from a result of the function.
            result: its result.
            noted: its result before an alteration, if there was one.
            mine: the weights among its arguments.
        """
        product = read(result if noted is None else noted)
        if product is None:
            return result
        starts = {start for _, weights in mine for start in weights.starts}
        if all(start.function == "exp" for start in starts) and not product.is_of_shares():
            return result
        count = product.weights.numel()
        before = max(start.followed for start in starts)
        for start in starts:
            start.followed = max(start.followed, count)
        shapes = {start.shape for start in starts}
        if before and min(before, count) < max(shape.numel() for shape in shapes):
            (frame, *_) = (start.frame for start in starts)
            sizes = " or ".join(" × ".join(map(str, shape)) for shape in shapes)
            self._lost(frame, f"a softmax of {sizes} was multiplied with values in several parts")
            return result
        instead = self._found(
            replace(
                product,
                softmax_shape=shapes.pop() if len(shapes) == 1 else None,
                result=result,
                read=read,
                narrowed=[start.narrowed for start in starts],
                again=bool(before),
            )
        )
        if instead is None:
            return result
        altered.note(instead, result if noted is None else noted)
        return instead


def _softmax_axis(arguments: Sequence[Any], options: Mapping[str, Any]) -> int | None:
    """Return the axis of a softmax from its arguments; None without one."""
    axis = options.get("dim", arguments[1] if len(arguments) > 1 else None)
    return axis if isinstance(axis, int) else None


def _drops(arguments: Sequence[Any], options: Mapping[str, Any]) -> bool:
    """Return whether dropout is active, from its arguments input, p and training."""
    share = options.get("p", arguments[1] if len(arguments) > 1 else 0.5)
    trains = options.get(
        "training", options.get("train", arguments[2] if len(arguments) > 2 else 1)
    )
    return bool(trains) and share > 0


def _is_in_place(arguments: Sequence[Any], options: Mapping[str, Any]) -> bool:
    return bool(options.get("inplace", arguments[3] if len(arguments) > 3 else False))


def _flat(things: Iterable[Any]) -> Iterable[Any]:
    for one in things:
        if isinstance(one, list | tuple):
            yield from _flat(one)
        elif isinstance(one, Tensor):
            yield one


def _is_parameter(tensor: Any) -> bool:
    """Return whether a tensor is a parameter or a view of one."""
    if isinstance(tensor, nn.Parameter):
        return True
    is_view = isinstance(tensor, Tensor) and not tensor.is_inference() and tensor._is_view()
    return is_view and isinstance(tensor._base, nn.Parameter)


def _is_cast(weight: Tensor, module: nn.Module) -> bool:
    """Return whether a matrix is a parameter of a module in another dtype, as in routers."""
    same = (parameter for parameter in module.parameters() if parameter.shape == weight.shape)
    return any(torch.equal(weight, parameter.to(weight.dtype)) for parameter in same)


def _moved(
    function: Any,
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    tensor: Tensor,
    probe: Tensor | None,
    result: Any,
) -> Any:
    """Return the probe or probes of a function's result."""
    if probe is None or function in GATHERS:
        return None
    if function in COPIES:
        return probe
    if function in SHAPES:
        with_probe = [probe if one is tensor else one for one in arguments]
        named = {name: probe if one is tensor else one for name, one in options.items()}
        if any(
            isinstance(one, Tensor) and one is not probe for one in (*with_probe, *named.values())
        ):
            # Tensor indices.
            return None
        try:
            moved = function(*with_probe, **named)
        except RuntimeError:
            # A view that joins the key axis with others.
            return None
        is_view = not isinstance(moved, Tensor) or moved._is_view() or moved is probe
        return moved if is_view else None
    if not isinstance(result, Tensor):
        return None
    try:
        return probe.broadcast_to(result.shape)
    except RuntimeError:
        return None


def _spreads(tensor: Tensor, result: Tensor) -> bool:
    """Return whether weights were broadcast over the last axis, as by values."""
    return tensor.shape[-1] == 1 < result.shape[-1] and result.dim() >= 3
