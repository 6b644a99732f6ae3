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
masks that were added to them, which look the same: then the mask is unknown (`Unknown`), and
whatever counts allowed pairs refuses it. So it is with −1000 in place of scores or added to them,
which leaves no weight either. The numbers of ALiBi reach as far in long texts, but by small steps:

    added   0 ... −50 ... −103 ... −4000      a bias
            0             −1000               unknown
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.capture.functions import (
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

_NO_WEIGHT = -103.0
"""e^−103 is the smallest weight in float32. A number between this and `MASKS` leaves no weight,
and may be meant as a score or as a mask."""

_STEP = 52.0
"""The largest step between the numbers of a bias where they pass `_NO_WEIGHT`. The steps of ALiBi
are its slopes, at most 1. A mask of −103, the highest that leaves no weight, is 103 from 0."""

_STEEP = 1e3
"""Factors on scores are below: temperatures of CLIP and Swin v2 reach 100."""

Masked = Bool[Tensor, "..."] | None
"""The masked pairs in the shape of scores; None if there are none."""


class Unknown(Exception):
    """It is unknown which pairs are masked."""


@dataclass(frozen=True, eq=False)
class ScoreMask:
    """Known properties of scores.

    Attributes:
        masked: the masked pairs.
        operands: the tensors whose product they are: queries, and keys [..., keys, key_dim]; the
            other way round if the scores were transposed later.
    """

    masked: Masked
    operands: Sequence[Tensor]


def masked_by(added: Any, num_keys: int) -> Masked:
    """Return the pairs that are masked by numbers added to their scores.

    Args:
        added: the numbers, [..., num_keys or 1].
        num_keys: the size of the last axis of the scores.

    Raises:
        Unknown: some of the numbers may be masks or biases.
    """
    if not isinstance(added, Tensor) or not added.is_floating_point() or added.dim() == 0:
        return None
    low = added <= MASKS
    _check_steps(added)
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


def _check_steps(added: Tensor) -> None:
    """Raise Unknown if numbers that leave no weight are far below all others, as masks are.

    Also if some are as far above them: of scores whose sign is changed later, they are masks.
    """
    if bool((added >= -_NO_WEIGHT).any()):
        raise Unknown
    low = (added <= _NO_WEIGHT) & (added > MASKS)
    if bool(low.any()):
        infinite = torch.tensor(torch.inf, dtype=added.dtype, device=added.device)
        highest = torch.where(low, added, -infinite).max()
        if bool(torch.where(added > _NO_WEIGHT, added, infinite).min() > highest + _STEP):
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
        Unknown: they are unknown.
    """
    masks = [mask for x in (*arguments, *options.values()) if (mask := mask_of(x)) is not None]
    before = masks[0].masked if masks else None
    if function in SHAPES or function in GATHERS:
        return moved(function, arguments, options, lambda x: _masked_in(mask_of(x)))
    if function in COPIES:
        masked = before
    elif function in SCALES:
        _check_scale(arguments, options, mask_of)
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
        upper = _argument(2, "max", arguments, options) if function in CLAMPS else None
        if upper is not None and bool(torch.as_tensor(upper).min() <= _NO_WEIGHT):
            raise Unknown
        masked = before
    else:
        # Elementwise, on scores that all may be attended to.
        others = [x for x in tensors_of(arguments, options) if mask_of(x) is None]
        numbers = [x for x in (*arguments, *options.values()) if isinstance(x, int | float)]
        low = any(x.is_floating_point() and bool((x <= _NO_WEIGHT).any()) for x in others)
        low = low or any(x <= _NO_WEIGHT for x in numbers)
        if before is not None or function in IN_PLACE or low:
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
        Unknown: they are unknown.
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
    if not _NO_WEIGHT <= number <= -_NO_WEIGHT:
        raise Unknown
    return None


def _side(value: Any, mask: ScoreMask | None, condition: Tensor) -> Masked:
    """Return the masked pairs of one side of `torch.where`."""
    if mask is not None:
        return mask.masked
    if not isinstance(value, Tensor) or value.numel() == 1:
        return _filled(value, condition)
    low = value <= MASKS
    if bool(((value.abs() >= -_NO_WEIGHT) & ~low).any()):
        raise Unknown
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


def _check_scale(
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    mask_of: Callable[[Any], ScoreMask | None],
) -> None:
    """Raise Unknown if scores are multiplied by a factor that may change their sign or mask."""
    for factor in (*arguments, *options.values()):
        if isinstance(factor, int | float) and factor <= 0:
            raise Unknown
        if not isinstance(factor, Tensor) or mask_of(factor) is not None:
            continue
        if bool((factor < 0).any() or (factor > _STEEP).any()):
            raise Unknown
