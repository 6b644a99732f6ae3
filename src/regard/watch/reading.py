"""Find the axes of explicit weights, from the module's inputs and number of heads."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from jaxtyping import Float
from torch import Tensor, nn

from regard.watch.module_stack import Frame
from regard.watch.product import Product

_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "heads")
"""Attributes with the number of heads of a module."""


class InParts(ValueError):
    """Weights are only a part of a module's attention."""


@dataclass(frozen=True, eq=False)
class Reading:
    """Weights, values and outputs with named axes.

    Attributes:
        weights: the weights.
        value: the values.
        output: the output.
        heads_known: whether batch and heads could be separated; if not, there is one head, and the
            batch axis has both.
    """

    weights: Float[Tensor, "batch heads queries keys"]
    value: Float[Tensor, "batch heads keys dim"]
    output: Float[Tensor, "batch heads queries dim"]
    heads_known: bool


def read_axes(product: Product, running: Sequence[Frame], num_heads: int | None) -> Reading:
    """Find the axes of weights.

    Args:
        product: the product of weights and values.
        running: the running modules, the innermost last.
        num_heads: the number of heads, if known.

    Raises:
        InParts: the number of rows differs from the module's tokens, as in block-sparse or chunked
            attention.
    """
    weights, value, output = product.weights, product.value, product.output
    given = _shapes(running)
    lengths = _lengths(_but_masks(given, product.weights.shape))
    heads = num_heads or (num_heads_of(running[-1].module) if running else None)
    first: Sequence[int] = output.shape[:-2]
    rows = weights.shape[-2]
    shared = value.dim() < 4 or value.shape[-3] == 1
    if len(first) == 2 and shared and heads == rows != first[1] and first[1] in lengths:
        # [batch, queries, heads, keys], with values shared by all heads.
        weights, output = weights.transpose(1, 2), output.transpose(1, 2)
        first, rows = (first[0], rows), first[1]
    if given and rows != 1 and rows not in lengths:
        sizes = ", ".join(" × ".join(map(str, one)) for one in given[:3])
        raise InParts(
            f"block-sparse or chunked attention, or queries of the module's own: a softmax has "
            f"{rows} rows where the module was given {sizes}"
        )
    parts = [x.expand(*first, *x.shape[-2:]) for x in (weights, value, output)]
    before = product.softmax_shape
    if len(first) == 1 and before and [*before[-2:]] == [*weights.shape[-2:]]:
        # The softmax may have had more axes, which were joined later.
        first = tuple(before[:-2]) if prod(before[:-2]) == first[0] else first
    sizes = _batch_and_heads(first, given, heads, certain=num_heads is not None)
    if sizes == "turned":
        parts = [x.reshape(*first, *x.shape[-2:]).transpose(0, 1) for x in parts]
        sizes = (first[1], first[0])
    known = not isinstance(sizes, str)
    batch, heads = sizes if not isinstance(sizes, str) else (prod(first), 1)
    return Reading(*(x.reshape(batch, heads, *x.shape[-2:]) for x in parts), heads_known=known)


def _batch_and_heads(
    first: Sequence[int], given: Sequence[Sequence[int]], heads: int | None, *, certain: bool
) -> tuple[int, int] | str:
    """Return the number of sequences and of heads, "turned" if heads come first, or "unknown"."""
    if len(first) == 0:
        return (1, 1) if heads in (None, 1) else "unknown"
    if len(first) == 1:
        (size,) = first
        batches = _batches(given)
        if heads and size % heads == 0 and (certain or size // heads in batches - {size}):
            return size // heads, heads
        one_head = heads in (None, 1) and (size in batches or not given)
        return (size, 1) if one_head else "unknown"
    if heads in (None, first[-1]) or (len(first) == 2 and first[-1] == 1):
        return prod(first[:-1]), first[-1]
    return "turned" if len(first) == 2 and first[0] == heads else "unknown"


def _shapes(running: Sequence[Frame]) -> list[list[int]]:
    """Return the input shapes of the innermost module that has any."""
    for frame in reversed(running):
        shapes = [list(x.shape) for x in frame.given if x.is_floating_point() and x.dim() >= 2]
        if shapes:
            return shapes
    return []


def _but_masks(given: Sequence[Sequence[int]], weights: Sequence[int]) -> list[Sequence[int]]:
    """Return the shapes without those of masks and biases, which match the scores.

    The first input is never a mask.
    """
    later = (one for one in given[1:] if len(one) < 4 or [*one[-2:]] != [*weights[-2:]])
    return [*given[:1], *later]


def _lengths(given: Sequence[Sequence[int]]) -> set[int]:
    """Return the possible numbers of tokens: sizes of axes, and products of neighbouring ones."""
    return {
        prod(shape[start:stop])
        for shape in given
        for start in range(len(shape))
        for stop in range(start + 1, len(shape) + 1)
        # The last axis has features.
        if start < len(shape) - 1
    }


def _batches(given: Sequence[Sequence[int]]) -> set[int]:
    """Return the possible batch sizes: sizes of axes before the last."""
    return {size for shape in given for size in shape[:-1]} | {1}


def num_heads_of(module: nn.Module) -> int | None:
    """Return the number of heads from a module's attributes."""
    for name in _HEADS:
        found = getattr(module, name, None)
        if isinstance(found, int) and not isinstance(found, bool) and found > 0:
            return found
    return None
