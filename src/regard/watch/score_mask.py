"""Which pairs a model masks between the product of queries and keys and its softmax.

Scores are followed from function to function. With them goes a boolean tensor of their shape, True
where a pair is masked:

    scores = q @ k.mT / 8                         nothing is masked
    scores = scores.masked_fill(~causal, -1e9)    ~causal
    scores = scores + (1 - kept) * -1e4           ~causal | ~kept
    scores = scores.view(batch * heads, n, n)     the same, viewed alike
    scores.softmax(dim=-1)

A number masks a pair if no score can make up for it: −∞, the lowest numbers of a dtype, and one
number up to −10⁴ in a tensor that else has zeros only. Between these lie biases such as ALiBi and
masks that were added to them, which can't be told apart: then the mask is unknown (`Unknown`), and
whatever counts allowed pairs refuses it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.watch.functions import (
    ADDS,
    BOUNDS,
    CHOOSES,
    CLAMPS,
    COPIES,
    FILLS,
    GATHERS,
    IN_PLACE,
    SCALES,
    SETS,
    SHAPES,
    SUBTRACTS,
    VIEWS,
)

MASKS = -1e4
"""The highest number that models add to the score of a masked pair, or put in its place."""

_NO_SCORE = -1e30
"""Below any bias: models mask with finfo.min, −3.4e38, to which scores and biases may be added."""

_NO_SCORE_FLOAT16 = -3e4
"""The same in float16, whose finfo.min is −65504."""

_FILLED_WEIGHT = -103.0
"""e^−103 is the smallest weight in float32. What is filled in between this and `MASKS` leaves no
weight, and may be meant as a score or as a mask."""

Masked = Bool[Tensor, "..."] | None
"""The masked pairs in the shape of scores; None if there are none."""


class Unknown(Exception):
    """Which pairs are masked can't be told."""


@dataclass(frozen=True, eq=False)
class ScoreMask:
    """What is known of scores.

    Attributes:
        masked: the masked pairs.
        operands: the tensors whose product they are: queries and keys in either order.
    """

    masked: Masked
    operands: Sequence[Tensor]


def masked_by(added: Any, num_keys: int) -> Masked:
    """Return the pairs that are masked by what is added to their scores.

    Args:
        added: what is added, [..., num_keys or 1].
        num_keys: the size of the last axis of the scores.

    Raises:
        Unknown: some of the numbers may be masks or biases.
    """
    if not isinstance(added, Tensor) or not added.is_floating_point() or added.dim() == 0:
        return None
    low = added <= MASKS
    if not bool(low.any()):
        return None
    if added.shape[-1] != num_keys:
        # The same for all keys of a row, unless keys are on another axis.
        raise Unknown
    lowest = is_lowest(added)
    numbers = added[low & ~lowest]
    if not len(numbers):
        return lowest
    # One number masks all pairs; twice the number, a pair that two masks have.
    highest = numbers.max()
    is_mask = bool(((numbers == highest) | (numbers == 2 * highest)).all())
    if is_mask and bool((low | (added == 0.0)).all()):
        return low
    raise Unknown


def is_lowest(bias: Tensor) -> Bool[Tensor, "..."]:
    """Return where a bias is so low that no score makes up for it: −∞ or about finfo.min."""
    return bias <= (_NO_SCORE_FLOAT16 if bias.dtype == torch.float16 else _NO_SCORE)


def mask_after(
    function: Any,
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    mask_of: Callable[[Any], ScoreMask | None],
) -> Any:
    """Return the masked pairs of the scores that a function is about to return.

    Args:
        function: the function.
        arguments: its positional arguments.
        options: its keyword arguments.
        mask_of: returns the mask of an argument; None if it is no scores.

    Returns:
        `Masked`, which broadcasts to the result, or a list if the function returns several tensors.

    Raises:
        Unknown: they can't be told.
    """
    masks = [mask for x in (*arguments, *options.values()) if (mask := mask_of(x)) is not None]
    before = masks[0].masked if masks else None
    if function in SHAPES or function in GATHERS:
        return moved(function, arguments, options, lambda x: _masked_in(mask_of(x)))
    if function in COPIES:
        masked = before
    elif function in SCALES:
        _check_scale(arguments, options)
        masked = before
    elif function in ADDS or function in SUBTRACTS:
        masked = _added(function in SUBTRACTS, arguments, options, mask_of)
    elif function in FILLS:
        filled = _argument(1, "mask", arguments, options)
        value = _argument(2, "value", arguments, options)
        masked = _chosen(filled, _filled(value, filled), before)
    elif function in CHOOSES:
        condition = _argument(0, "condition", arguments, options)
        sides = [_argument(n, name, arguments, options) for n, name in ((1, "input"), (2, "other"))]
        masked = _chosen(condition, *(_side(x, mask_of(x), condition) for x in sides))
    elif function in SETS:
        index, value = arguments[1:]
        masked = _set(arguments[0], index, value, before)
    elif function in BOUNDS or function in CLAMPS:
        lower = _argument(1, "other" if function in BOUNDS else "min", arguments, options)
        if function in BOUNDS and not isinstance(lower, Tensor):
            # The maximum of an axis.
            raise Unknown
        if lower is not None and bool(torch.as_tensor(lower).max() > MASKS):
            raise Unknown
        masked = before
    else:
        # Elementwise, on scores that all may be attended to.
        others = [x for x in tensors_of(arguments, options) if mask_of(x) is None]
        low = (x for x in others if x.is_floating_point() and bool((x <= MASKS).any()))
        if before is not None or function in IN_PLACE or any(True for _ in low):
            raise Unknown
        masked = None
    return masked


def moved(
    function: Any,
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    masked_in: Callable[[Tensor], Masked],
) -> Any:
    """Return the masked pairs of the result of a function that moves numbers.

    Raises:
        Unknown: they can't be told.
    """
    if all(masked_in(x) is None for x in tensors_of(arguments, options)):
        return None

    def companion(argument: Any) -> Any:
        if isinstance(argument, list | tuple):
            return type(argument)(map(companion, argument))
        if not isinstance(argument, Tensor) or not argument.is_floating_point():
            return argument
        masked = masked_in(argument)
        if masked is None:
            masked = torch.zeros((), dtype=torch.bool, device=argument.device)
        masked = masked.expand(argument.shape)
        # In the strides of the argument, which some views need; elsewhere without memory.
        return masked.contiguous() if function in VIEWS else masked

    try:
        return function(*map(companion, arguments), **{n: companion(x) for n, x in options.items()})
    except (RuntimeError, TypeError):
        raise Unknown from None


def tensors_of(arguments: Sequence[Any], options: Mapping[str, Any]) -> Iterator[Tensor]:
    """Yield the tensors among the arguments of a function."""
    for argument in (*arguments, *options.values()):
        if isinstance(argument, list | tuple):
            yield from tensors_of(argument, {})
        elif isinstance(argument, Tensor):
            yield argument


def _masked_in(mask: ScoreMask | None) -> Masked:
    return None if mask is None else mask.masked


def _argument(number: int, name: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
    return arguments[number] if len(arguments) > number else options.get(name)


def _added(
    subtracts: bool,
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    mask_of: Callable[[Any], ScoreMask | None],
) -> Masked:
    """Return the masked pairs of a sum or difference."""
    if options.get("alpha", 1) != 1:
        raise Unknown
    first = _argument(0, "input", arguments, options)
    second = _argument(1, "other", arguments, options)
    if subtracts:
        if mask_of(second) is not None:
            raise Unknown
        second = -second if isinstance(second, Tensor) and second.is_floating_point() else None
    both: Masked = None
    for term, other in ((first, second), (second, first)):
        mask = mask_of(term)
        if mask is None:
            masked = masked_by(term, other.shape[-1]) if isinstance(other, Tensor) else None
        else:
            masked = mask.masked
        if masked is not None:
            both = masked if both is None else both | masked
    return both


def _filled(value: Any, like: Tensor) -> Masked:
    """Return whether a number masks the pairs that it is filled into, as a tensor if so."""
    number = float(value)
    if number <= MASKS:
        return torch.ones((), dtype=torch.bool, device=like.device)
    if number < _FILLED_WEIGHT:
        raise Unknown
    return None


def _side(value: Any, mask: ScoreMask | None, condition: Tensor) -> Masked:
    """Return the masked pairs of one side of `torch.where`."""
    if mask is not None:
        return mask.masked
    if not isinstance(value, Tensor) or value.numel() == 1:
        return _filled(value, condition)
    low = value <= MASKS
    return low if bool(low.any()) else None


def _chosen(condition: Tensor, first: Masked, second: Masked) -> Masked:
    """Return the masked pairs of `torch.where`."""
    if first is None and second is None:
        return None
    nothing = torch.zeros((), dtype=torch.bool, device=condition.device)
    sides = (nothing if side is None else side for side in (first, second))
    return torch.where(condition, *sides)


def _set(scores: Tensor, index: Any, value: Any, before: Masked) -> Masked:
    """Return the masked pairs of scores of which some were set to a number."""
    if isinstance(value, Tensor) and value.numel() > 1:
        raise Unknown
    is_mask = _filled(value, scores) is not None
    if before is None and not is_mask:
        return None
    masked = torch.zeros_like(scores, dtype=torch.bool) if before is None else before.clone()
    masked[index] = is_mask
    return masked


def _check_scale(arguments: Sequence[Any], options: Mapping[str, Any]) -> None:
    """Raise Unknown if scores are multiplied by a number that is not positive."""
    for factor in (*arguments, *options.values()):
        if isinstance(factor, int | float) and factor <= 0:
            raise Unknown
