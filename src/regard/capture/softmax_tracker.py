"""Follow scores to their softmax, and weights to their product with values.

That is attention without a fused kernel:

    q @ k.mT ──► masks, biases, … ──► softmax ──► dropout, views, … ──► @ v
              with it goes `masked`            with it go `masked`, `clean` and `probe`

A tensor is known by its identity. With it go companions, tensors of its shape to which the same
reshaping is applied: which pairs are masked (`score_mask`), the weights without dropout, and a
probe without memory, whose strides mark the key axis. What is followed through functions that
change numbers is the tensor that is multiplied with values; whether it is still the result of its
softmax is noted, because gradients of scores need that.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.capture.functions import (
    ADDS,
    BEFORE_SOFTMAX,
    BEGINS,
    COPIES,
    DROPOUT,
    EXP,
    FOLLOWED,
    GATHERS,
    IN_PLACE,
    KEEP_WEIGHTS,
    LOG_SOFTMAX,
    MULTIPLIES,
    SCALES,
    SELECTS,
    SHAPES,
    SUBTRACTS,
    SUMS,
)
from regard.capture.module_stack import Frame
from regard.capture.product import (
    PRODUCTS,
    ChangedScores,
    Product,
    WeightMask,
    operands,
    probe_of,
    queries_and_keys,
    read_product,
    read_sum,
)
from regard.capture.score_mask import (
    Masked,
    ScoreMask,
    Unknown,
    mask_after,
    masked_by,
    moved,
    tensors_of,
)
from regard.internals import in_functorch

WATCHED = BEGINS | PRODUCTS
"""The functions that make scores and weights, and those that multiply weights."""


@dataclass(eq=False)
class _Start:
    """A call of a function that makes weights.

    Attributes:
        function: "softmax", "log_softmax" or "exp".
        shape: the shape of its result.
        frame: the running module.
        scored: whether its scores may be products of queries and keys; then it must be reported if
            it is not followed.
        operands: queries and keys; see `ScoreMask`.
        followed: maximum number of its weights that were multiplied together; 0 if none.
        alive: number of tensors derived from it.
        masked: its scores as each listener that masks pairs has left them.
    """

    function: str
    shape: torch.Size
    frame: Frame
    scored: bool
    operands: Sequence[Tensor] = ()
    followed: int = 0
    alive: int = 0
    masked: Mapping[object, ChangedScores] = field(default_factory=dict[object, ChangedScores])


@dataclass(frozen=True, eq=False)
class _Weights:
    """A tensor between a softmax and a product.

    Attributes:
        starts: the softmaxes that it was made from.
        clean: the same without dropout, if there was any.
        probe: marks the key axis; None if unknown. See `probe_of`.
        mask: its masked pairs; None if unknown.
        factor: weights and values, if it is their elementwise product, not summed yet.
        logarithm: whether it is the logarithm of weights.
        changed: whether it is something else than the result of one softmax.
    """

    starts: frozenset[_Start]
    clean: Tensor | None = None
    probe: Tensor | None = None
    mask: WeightMask | None = None
    factor: tuple[Tensor, Tensor] | None = None
    logarithm: bool = False
    changed: bool = False


@dataclass(frozen=True, eq=False)
class _Scores:
    """A tensor between a product and a softmax.

    Attributes:
        mask: what is known of it.
        version: the number of its modifications; None for inference tensors.
    """

    mask: ScoreMask
    version: int | None


class SoftmaxTracker:
    """Follows scores to their softmax, and weights to their product with values.

    Args:
        running: returns the running modules, the innermost last.
        mask_scores: called before a softmax with the scores, the axis of their keys and their mask;
            returns the scores as each listener that masks pairs leaves them.
        on_product: called with each product of weights and values; may return another result.
        on_untracked: called with each softmax that was not followed to a product.

    Attributes:
        tracked: the scores and weights that are followed, by `id`.
    """

    def __init__(
        self,
        running: Callable[[], Sequence[Frame]],
        mask_scores: Callable[[Tensor, int, ScoreMask | None], Mapping[object, ChangedScores]],
        on_product: Callable[[Product], Tensor | None],
        on_untracked: Callable[[Frame, str], None],
    ) -> None:
        self._running, self._mask_scores = running, mask_scores
        self._on_product, self._on_untracked = on_product, on_untracked
        self.tracked: dict[int, tuple[weakref.ref[Tensor], _Weights | _Scores]] = {}
        self._starts: list[_Start] = []

    def run(self, function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Run a watched function."""
        if function in PRODUCTS:
            return self._multiply(function, arguments, options)
        weights = self._weights_in(arguments, options) if self.tracked else []
        begins = function in BEGINS and (not weights or function not in EXP)
        if begins:
            return self._softmax(function, arguments, options, weights)
        if weights and (function in FOLLOWED or function in EXP):
            return self._follow(function, arguments, options, weights)
        scores = [mask for x in tensors_of(arguments, options) if (mask := self._mask_of(x))]
        if scores:
            return self._follow_scores(function, arguments, options, scores)
        return function(*arguments, **options)

    def end(self, *, all_of_them: bool) -> None:
        """Report softmaxes without living tensors, or all that were not multiplied."""
        if not (self._starts or self.tracked):
            return
        for start in self._starts:
            gone = all_of_them or not start.alive
            if gone and start.scored and not start.followed:
                sizes = " × ".join(map(str, start.shape))
                reason = f"a {start.function} of {sizes} was not followed to a product with values"
                self._on_untracked(start.frame, reason)
        self._starts = [] if all_of_them else [start for start in self._starts if start.alive]
        if all_of_them:
            self.tracked.clear()

    def forget(self) -> None:
        """Drop all references."""
        self.tracked.clear()
        self._starts.clear()

    # Tracked tensors.

    def _track(self, tensor: Tensor, entry: "_Weights | _Scores") -> None:
        number = id(tensor)
        before = self.tracked.pop(number, None)
        if isinstance(entry, _Weights):
            for start in entry.starts:
                start.alive += 1
        if before is not None:
            self._release(before[1])

        def gone(reference: weakref.ref[Tensor]) -> None:
            tracked = self.tracked.get(number)
            if tracked is not None and tracked[0] is reference:
                self._release(self.tracked.pop(number)[1])

        self.tracked[number] = (weakref.ref(tensor, gone), entry)

    @staticmethod
    def _release(entry: "_Weights | _Scores") -> None:
        if isinstance(entry, _Weights):
            for start in entry.starts:
                start.alive -= 1

    def _entry(self, tensor: Any) -> "_Weights | _Scores | None":
        tracked = self.tracked.get(id(tensor))
        return tracked[1] if tracked is not None and tracked[0]() is tensor else None

    def _weights_in(
        self, arguments: Sequence[Any], options: Mapping[str, Any]
    ) -> list[tuple[Tensor, _Weights]]:
        """Return the weights among the arguments of a function."""
        entries = ((x, self._entry(x)) for x in tensors_of(arguments, options))
        return [(x, entry) for x, entry in entries if isinstance(entry, _Weights)]

    def _mask_of(self, tensor: Any) -> ScoreMask | None:
        """Return what is known of scores; None for other tensors."""
        entry = self._entry(tensor)
        if not isinstance(entry, _Scores):
            return None
        # A function that isn't followed may have modified them.
        if entry.version is not None and entry.version != tensor._version:
            return None
        return entry.mask

    def _track_scores(self, scores: Any, masked: Masked, operands: Sequence[Tensor]) -> None:
        if not isinstance(scores, Tensor) or not scores.is_floating_point() or scores.dim() < 2:
            return
        if masked is not None:
            if torch.broadcast_shapes(masked.shape, scores.shape) != scores.shape:
                return
            masked = masked.expand(scores.shape)
        version = None if scores.is_inference() else scores._version
        self._track(scores, _Scores(ScoreMask(masked, operands), version))

    # From the product of queries and keys to the softmax.

    def _follow_scores(
        self,
        function: Any,
        arguments: Sequence[Any],
        options: Mapping[str, Any],
        scores: Sequence[ScoreMask],
    ) -> Any:
        """Run a function of scores, and track what it returns if its masked pairs are known."""
        modified = arguments[0] if arguments and _modifies(function) else options.get("out")
        try:
            if function not in BEFORE_SOFTMAX:
                raise Unknown
            # Before the function runs, which may modify its arguments.
            masked = mask_after(function, arguments, options, self._mask_of)
        except Unknown:
            self.tracked.pop(id(modified), None)
            return function(*arguments, **options)

        result = function(*arguments, **options)
        operands = [x for mask in scores for x in mask.operands]
        if modified is not None:
            self._track_scores(modified, masked, operands)
        elif isinstance(result, Tensor):
            self._track_scores(result, masked, operands)
        elif isinstance(result, list | tuple):
            parts = [None] * len(result) if masked is None else masked
            for part, masked_part in zip(result, parts, strict=True):
                self._track_scores(part, masked_part, operands)
        return result

    def _softmax(
        self,
        function: Any,
        arguments: Sequence[Any],
        options: Mapping[str, Any],
        weights: Sequence[tuple[Tensor, _Weights]],
    ) -> Any:
        """Run a softmax, whose scores listeners may mask, and begin to track its result."""
        # The input of a softmax is scores, even if it was made from weights.
        for start in {start for _, entry in weights for start in entry.starts if start.scored}:
            start.scored, self._running()[-1].scored = False, True

        scores = arguments[0] if arguments else options.get("input")
        axis = _softmax_axis(arguments, options)
        mask = self._mask_of(scores)
        masked: Mapping[object, ChangedScores] = {}
        is_softmax = function not in EXP and function not in LOG_SOFTMAX
        if is_softmax and scores is not None and axis is not None and self._running()[-1].scored:
            masked = self._mask_scores(scores, axis, mask)
        for part in masked.values():
            # The last one has the pairs of all.
            scores = part.scores
        if masked and arguments:
            arguments = (scores, *arguments[1:])
        elif masked:
            options = {**options, "input": scores}

        result = function(*arguments, **options)
        for part in masked.values():
            if part.empty is not None:
                result = result.masked_fill(part.empty, 0.0)
        self._begin(function, axis, result, mask, masked)
        return result

    def _begin(
        self,
        function: Any,
        axis: int | None,
        result: Any,
        mask: ScoreMask | None,
        masked: Mapping[object, ChangedScores],
    ) -> None:
        """Track the result of a softmax.

        Args:
            function: the function.
            axis: its axis, if it has one.
            result: its result.
            mask: what is known of its input.
            masked: the masked scores that it ran on instead.
        """
        frame = self._running()[-1]
        if not isinstance(result, Tensor) or result.dim() < 2 or not result.is_floating_point():
            return
        name = "exp" if function in EXP else "softmax"
        if name == "softmax":
            name = "log_softmax" if function in LOG_SOFTMAX else name
            if axis is None:
                return
        elif not frame.scored:
            # Most exponentials are not attention.
            return

        scored = frame.scored and name != "exp" and name == "softmax"
        operands = () if mask is None else mask.operands
        start = _Start(name, result.shape, frame, scored, operands, masked=masked)
        if name != "exp":
            frame.scored = False
        frame.attends = frame.attends or scored
        self._starts.append(start)

        known: WeightMask | None = None
        if mask is not None:
            parts = [mask.masked, *(part.masked for part in masked.values())]
            known = WeightMask(_joined([part for part in parts if part is not None]))
        probe = probe_of(result.shape, -1 if axis is None else axis)
        logarithm = name == "log_softmax"
        entry = _Weights(frozenset([start]), None, probe, known, logarithm=logarithm)
        self._track(result, entry)

    # From the softmax to the product with values.

    def _follow(
        self,
        function: Any,
        arguments: Sequence[Any],
        options: Mapping[str, Any],
        inputs: list[tuple[Tensor, _Weights]],
    ) -> Any:
        """Run a function of weights, and track its result."""
        if function in SHAPES or function in COPIES:
            # Others only have the shape or the dtype.
            moved_tensor = arguments[0] if arguments else options.get("input")
            inputs = [entry for entry in inputs if entry[0] is moved_tensor]
            if not inputs:
                return function(*arguments, **options)
        tensor, weights = inputs[0]
        if function in SUMS:
            return self._sum(function, arguments, options, inputs)
        if function in DROPOUT:
            clean = weights.clean
            if clean is None and _drops(arguments, options):
                # Dropout in place overwrites the weights.
                clean = tensor.clone() if _is_in_place(arguments, options) else tensor
            result = function(*arguments, **options)
            self._track_all(result, replace(weights, clean=clean, factor=None), weights.probe)
            return result

        if function in EXP and not weights.logarithm:
            return function(*arguments, **options)
        clean = None
        if any(entry.clean is not None for _, entry in inputs):
            try:
                clean = self._without_dropout(function, arguments, options)
            except RuntimeError:
                # The clean weights have other strides, which don't allow this view.
                return function(*arguments, **options)
        # Before the function runs, which may overwrite them.
        mask = self._mask_after(function, arguments, options, inputs)
        in_place = function in IN_PLACE
        before = tensor.clone() if in_place and function in KEEP_WEIGHTS else tensor
        result = function(*arguments, **options)

        after = arguments[0] if in_place else result
        if in_place:
            probe = weights.probe if after is tensor else None
        else:
            probe = _moved(function, arguments, options, tensor, weights.probe, result)
        entry = _Weights(
            starts=frozenset(start for _, entry in inputs for start in entry.starts),
            clean=clean,
            logarithm=weights.logarithm and function not in EXP,
            changed=any(entry.changed for _, entry in inputs),
        )
        if factor := _factor(function, arguments, tensor, result):
            self._track_all(result, replace(entry, mask=weights.mask, factor=factor), probe)
            return result
        is_changed = len(inputs) > 1 or _is_changed(function, before, after, in_place=in_place)
        if mask is not None and is_changed and function not in SCALES and len(inputs) == 1:
            mask = mask._replace(zeroed=True)
        entry = replace(entry, mask=mask, changed=entry.changed or is_changed)
        self._track_all(after, entry, probe)
        return result

    def _sum(
        self,
        function: Any,
        arguments: Sequence[Any],
        options: Mapping[str, Any],
        inputs: list[tuple[Tensor, _Weights]],
    ) -> Any:
        """Run a sum, which may be that of weights · values over the keys."""
        tensor, weights = inputs[0]
        result = function(*arguments, **options)
        if weights.factor is None or not isinstance(result, Tensor):
            return result
        factor, value = weights.factor

        def read(result: Tensor, substitute: Tensor | None) -> Product | None:
            rows = factor if substitute is None else substitute
            return read_sum(rows, value, tensor, arguments, options, result)

        return self._multiplied(read, result, inputs)

    def _mask_after(
        self,
        function: Any,
        arguments: Sequence[Any],
        options: Mapping[str, Any],
        inputs: list[tuple[Tensor, _Weights]],
    ) -> WeightMask | None:
        """Return the mask of weights that a function returns; None if unknown."""
        masks = [weights.mask for _, weights in inputs]
        if any(mask is None for mask in masks):
            return None
        masked = [mask.masked for mask in masks if mask is not None]
        zeroed = any(mask.zeroed for mask in masks if mask is not None)
        if function in SHAPES or function in GATHERS:
            by_number = {id(x): mask for (x, _), mask in zip(inputs, masked, strict=True)}

            def masked_in(tensor: Tensor) -> Masked:
                return by_number.get(id(tensor))

            try:
                return WeightMask(moved(function, arguments, options, masked_in), zeroed)
            except Unknown:
                return None
        if len(inputs) > 1:
            # A difference of weights: masked is what both mask.
            is_sum = function in ADDS or function in SUBTRACTS
            return WeightMask(_common(masked), zeroed) if is_sum else None
        if function in SCALES and not in_functorch():
            # A factor of 0 may be a mask.
            factors = (x for x in tensors_of(arguments, options) if x is not inputs[0][0])
            zeroed = zeroed or any(bool((factor == 0.0).any()) for factor in factors)
        return WeightMask(masked[0], zeroed)

    def _without_dropout(
        self, function: Any, arguments: Sequence[Any], options: Mapping[str, Any]
    ) -> Any:
        """Return the result of a function on weights without dropout."""

        def clean(x: Any) -> Any:
            if isinstance(x, list | tuple):
                return type(x)(map(clean, x))
            entry = self._entry(x) if isinstance(x, Tensor) else None
            if not isinstance(entry, _Weights) or entry.clean is None:
                return x
            # Copy before an in-place function.
            return entry.clean.clone() if function in IN_PLACE else entry.clean

        arguments = [clean(x) for x in arguments]
        result = function(*arguments, **{name: clean(x) for name, x in options.items()})
        return arguments[0] if function in IN_PLACE else result

    def _track_all(self, result: Any, weights: _Weights, probes: Any = None) -> None:
        """Track the results of a function: a tensor, or a list with companions for each part."""
        if isinstance(result, Tensor):
            if result.is_floating_point() and result.dim() >= 2:
                self._track(result, replace(weights, probe=probes))
        elif isinstance(result, list | tuple):
            mask = weights.mask
            for number, part in enumerate(result):
                clean = weights.clean[number] if weights.clean is not None else None
                if mask is not None and mask.masked is not None:
                    mask_of_part: WeightMask | None = mask._replace(masked=mask.masked[number])
                else:
                    mask_of_part = mask
                probe = probes[number] if probes is not None else None
                self._track_all(part, replace(weights, clean=clean, mask=mask_of_part), probe)

    def _multiply(self, function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        inputs = self._weights_in(arguments, options) if self.tracked else []
        if not inputs:
            return self._scores(function, arguments, options)
        result = function(*arguments, **options)
        if not isinstance(result, Tensor):
            return result
        tensor, weights = inputs[0]
        if function is F.linear and _is_parameter(operands(function, arguments, options)[1]):
            # Heads are mixed by parameters (talking heads).
            clean = None
            if weights.clean is not None:
                clean = self._without_dropout(function, arguments, options)
            probe = weights.probe if result.shape == tensor.shape else None
            mask = weights.mask
            if mask is not None and mask.masked is not None:
                mask = None
            mixed = replace(weights, clean=clean, mask=mask, factor=None, changed=True)
            self._track_all(result, mixed, probe)
            return result
        if len(inputs) > 1:
            # Weights times weights: follow the product.
            starts = frozenset(start for _, entry in inputs for start in entry.starts)
            self._track_all(result, _Weights(starts, changed=True))
            return result
        if weights.logarithm:
            return result

        def read(result: Tensor, substitute: Tensor | None) -> Product | None:
            clean, probe = weights.clean, weights.probe
            if substitute is not None:
                clean, probe = substitute, None
            return read_product(function, arguments, options, result, tensor, clean, probe)

        return self._multiplied(read, result, inputs)

    def _scores(self, function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Run a product of other tensors than weights, which may be that of queries and keys."""
        result = function(*arguments, **options)
        factors = operands(function, arguments, options)
        if not isinstance(result, Tensor) or len(factors) != 2:
            return result
        frame = self._running()[-1]
        if any(map(_is_parameter, factors)):
            known = [mask for x in factors if (mask := self._mask_of(x)) is not None]
            if known and known[0].masked is None:
                # Heads are mixed by parameters before any pair is masked.
                self._track_scores(result, None, known[0].operands)
            frame.add_projected(result)
            return result
        if function is F.linear and _is_cast(factors[1], frame.module):
            return result
        frame.scored = True
        if in_functorch():
            # Which pairs are masked is told by numbers.
            return result
        try:
            added = [x for x in tensors_of(arguments, options) if not any(x is y for y in factors)]
            masked = masked_by(added[0], result.shape[-1]) if added else None
            self._track_scores(result, masked, queries_and_keys(function, arguments, options))
        except Unknown:
            pass
        return result

    def _multiplied(
        self,
        read: Callable[[Tensor, Tensor | None], Product | None],
        result: Tensor,
        inputs: list[tuple[Tensor, _Weights]],
    ) -> Tensor:
        """Report a product; return the result for the model.

        Args:
            read: reads a product from a result of the function, and other weights if given.
            result: its result.
            inputs: the weights among its arguments.
        """
        product = read(result, None)
        if product is None:
            return result
        starts = {start for _, weights in inputs for start in weights.starts}
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
            self._on_untracked(
                frame, f"a softmax of {sizes} was multiplied with values in several parts"
            )
            return result

        weights = inputs[0][1]
        mask = weights.mask
        if mask is not None and mask.masked is not None:
            masked = read(result, mask.masked)
            mask = None if masked is None else mask._replace(masked=masked.weights)
        changed = self._on_product(
            replace(
                product,
                softmax_shape=shapes.pop() if len(shapes) == 1 else None,
                in_order=weights.probe is not None,
                result=result,
                original=result,
                read=read,
                masked_scores=[start.masked for start in starts],
                softmaxes=frozenset(starts),
                changed=weights.changed,
                again=bool(before),
                mask=mask,
                operands=[x for start in starts for x in start.operands],
            )
        )
        return result if changed is None else changed


def _modifies(function: Any) -> bool:
    """Return whether a function modifies its first argument, by its name."""
    name: str = getattr(function, "__name__", "")
    return function in IN_PLACE or (name.endswith("_") and not name.endswith("__"))


def _is_changed(function: Any, before: Tensor, after: Any, *, in_place: bool) -> bool:
    """Return whether a function returned other numbers than weights, but for NaN."""
    if function in SHAPES or function in COPIES or function in EXP:
        return False
    if function in GATHERS:
        return function in SELECTS
    if (in_place and function not in KEEP_WEIGHTS) or in_functorch():
        return True
    if not isinstance(after, Tensor) or after.shape != before.shape:
        return True
    return not bool((after == before.nan_to_num(0.0)).all())


def _factor(
    function: Any, arguments: Sequence[Any], tensor: Tensor, result: Any
) -> tuple[Tensor, Tensor] | None:
    """Return weights and values if a function multiplied them elementwise."""
    if function not in MULTIPLIES or not isinstance(result, Tensor):
        return None
    others = [x for x in arguments if isinstance(x, Tensor) and x is not tensor]
    return (tensor, others[0]) if len(others) == 1 and _spreads(tensor, result) else None


def _joined(masks: Sequence[Tensor]) -> Masked:
    """Return the pairs that any mask has."""
    joined: Masked = None
    for masked in masks:
        joined = masked if joined is None else joined | masked
    return joined


def _common(masks: Sequence[Masked]) -> Masked:
    """Return the pairs that all masks have."""
    common = masks[0]
    for masked in masks[1:]:
        common = None if common is None or masked is None else common & masked
    return common


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
        with_probe = [probe if x is tensor else x for x in arguments]
        named = {name: probe if x is tensor else x for name, x in options.items()}
        if any(isinstance(x, Tensor) and x is not probe for x in (*with_probe, *named.values())):
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
