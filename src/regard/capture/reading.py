"""Find the axes of explicit weights, from the module's inputs and number of heads."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.capture.module_stack import Frame
from regard.capture.product import Product, key_of

_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "heads")
"""Attributes with the number of heads of a module."""


_AMBIGUOUS = "two axes of its weights have {rows} entries, either may be that of queries"


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
        view: the result of the product, laid out as the output; see `Product.view`.
        masked: the masked pairs; None if there are none.
    """

    weights: Float[Tensor, "batch heads queries keys"]
    value: Float[Tensor, "batch heads keys dim"]
    output: Float[Tensor, "batch heads queries dim"]
    heads_known: bool
    view: Float[Tensor, "batch heads queries dim"] | None = None
    masked: Bool[Tensor, "batch heads queries keys"] | None = None


def read_axes(product: Product, running: Sequence[Frame], num_heads: int | None) -> Reading:
    """Find the axes of weights.

    Sizes tell most of them. Where sizes leave a choice, as in [heads · batch, queries, keys], the
    numbers of the values tell it, or it is unknown.

    Args:
        product: the product of weights and values.
        running: the running modules, the innermost last.
        num_heads: the number of heads, if known.

    Raises:
        InParts: the number of rows differs from the module's tokens, as in block-sparse or chunked
            attention.
        ValueError: queries and heads can't be told apart.
    """
    weights = product.weights
    given = _shapes(running)
    lengths = _lengths(_but_masks(given, weights.shape))
    heads = num_heads or _heads_of(running)
    tensors = {"weights": weights, "output": product.output, "view": product.view}
    tensors["masked"] = None if product.mask is None else product.mask.masked

    # 1. The axes of queries and keys.
    leading, rows = [*product.output.shape[:-2]], weights.shape[-2]
    if _has_queries_first(product, running, heads, lengths):
        # [batch, queries, heads, keys], with values shared by all heads.
        tensors = {name: None if x is None else x.transpose(1, 2) for name, x in tensors.items()}
        leading, rows = [leading[0], rows], leading[1]
    if given and rows != 1 and rows not in lengths:
        sizes = ", ".join(" × ".join(map(str, one)) for one in given[:3])
        raise InParts(
            f"block-sparse or chunked attention, or queries of the module's own: a softmax has "
            f"{rows} rows where the module was given {sizes}"
        )
    tensors["value"] = product.value
    known = {name: x for name, x in tensors.items() if x is not None}
    parts = {name: x.expand(*leading, *x.shape[-2:]) for name, x in known.items()}

    # 2. The axes of sequences and heads.
    before = [*(product.softmax_shape or ())]
    if len(leading) == 1 and product.in_order and before[-2:] == [*weights.shape[-2:]]:
        # The softmax may have had more axes, which were flattened later.
        leading = before[:-2] if prod(before[:-2]) == leading[0] else leading
    layouts = _layouts(leading, heads)
    if num_heads is not None:
        # nn.MultiheadAttention, whose batch comes first.
        layout = layouts[0] if layouts else None
    else:
        sizes = (rows, weights.shape[-1])
        key = key_of(product.operands, weights.shape[-1])
        sequences = partial(_sequences_of_either, parts["value"], key, running)
        layout = _chosen(layouts, leading, heads, sizes, _shapes(_callers(running)), sequences)
    batch, count = (prod(leading), 1) if layout is None else (layout.batch, layout.heads)
    named: dict[str, Any] = {}
    for name, x in parts.items():
        if layout is not None and layout.heads_first:
            x = x.reshape(count, batch, *x.shape[-2:]).transpose(0, 1)
        named[name] = x.reshape(batch, count, *x.shape[-2:])
    return Reading(**named, heads_known=layout is not None)


def are_heads_known(
    query: Float[Tensor, "batch heads queries key_dim"],
    value: Float[Tensor, "batch key_heads keys value_dim"],
    running: Sequence[Frame],
) -> bool:
    """Return whether the first two axes of a kernel's tensors are the batch and the heads.

    A kernel is told so by its caller, who may have other axes there. What contradicts that is a
    module with another number of heads, or values whose numbers are those of another sequence.

    Args:
        query: the queries.
        value: the values.
        running: the running modules, the innermost last.
    """
    batch, heads = query.shape[:2]
    said = _heads_of(running)
    if said is not None and said > 1 and heads == 1:
        return False
    sizes = (query.shape[2], value.shape[2])
    if said == batch != heads and heads in _batches(_shapes(_callers(running)), sizes):
        return False
    sequences = _sequences(value, running) if batch > 1 else None
    return sequences is None or _Layout(batch, value.shape[1]).agrees(sequences)


def num_heads_of(module: nn.Module) -> int | None:
    """Return the number of heads from a module's attributes."""
    for name in _HEADS:
        number = getattr(module, name, None)
        if isinstance(number, int) and not isinstance(number, bool) and number > 0:
            return number
    return None


def _callers(running: Sequence[Frame]) -> Sequence[Frame]:
    """Return the running modules without inner ones that have no linear layers."""
    ends = range(len(running), 1, -1)
    return running[: next((end for end in ends if running[end - 1].has_layers), 1)]


def _heads_of(running: Sequence[Frame]) -> int | None:
    """Return the number of heads that a module or the caller with its linear layers has."""
    inner = running[max(0, len(_callers(running)) - 1) :]
    numbers = (num_heads_of(frame.module) for frame in reversed(inner))
    return next((number for number in numbers if number is not None), None)


class _Layout(NamedTuple):
    """A reading of the axes of weights before queries and keys."""

    batch: int
    heads: int
    heads_first: bool = False

    def agrees(self, sequences: Sequence[int], *, parts: bool = False) -> bool:
        """Return whether rows are of the same sequence where their numbers say so.

        With `parts`, what it takes for sequences may be parts of these, such as windows.
        """
        rows = range(self.batch * self.heads)
        expected = [row % self.batch if self.heads_first else row // self.heads for row in rows]
        pairs = {*zip(expected, sequences, strict=True)}
        return len(pairs) == self.batch and (parts or len({*sequences}) == self.batch)


def _layouts(leading: Sequence[int], heads: int | None) -> list[_Layout]:
    """Return the possible readings of leading axes, the most usual first.

    Args:
        leading: the sizes of the axes.
        heads: the number of heads that the module has, if known.
    """
    number = prod(leading)
    if not leading:
        return [_Layout(1, 1)] if heads in (None, 1) else []
    if len(leading) == 1:
        if heads in (None, 1):
            return [_Layout(number, 1)]
        if number % heads:
            return []
        both = [_Layout(number // heads, heads, first) for first in (False, True)]
        return both if number > heads else both[:1]

    layouts: list[_Layout] = []
    if heads in (None, leading[-1]) or leading[-1] == 1:
        layouts.append(_Layout(number // max(1, leading[-1]), leading[-1]))
    if len(leading) == 2 and heads in (None, leading[0]):
        layouts.append(_Layout(leading[1], leading[0], heads_first=True))
    return layouts


def _chosen(
    layouts: Sequence[_Layout],
    leading: Sequence[int],
    heads: int | None,
    sizes: tuple[int, int],
    given: Sequence[Sequence[int]],
    sequences: Callable[[], list[int] | None],
) -> _Layout | None:
    """Return the one possible reading of leading axes, None if there are several or none.

    Args:
        layouts: the possible readings by the sizes of the axes.
        leading: the sizes of the axes.
        heads: the number of heads that the module has, if known.
        sizes: the number of queries and of keys.
        given: the shapes of the inputs of the module with the linear layers.
        sequences: returns the sequence of each row of the values, if their numbers tell it.
    """
    if not leading or not given:
        return layouts[0] if layouts else None
    told = sequences() if prod(leading) > 1 else None
    if told is not None:
        parts = len(leading) > 2
        return next((layout for layout in layouts if layout.agrees(told, parts=parts)), None)

    # An input [batch, heads, queries, features] tells the order of its axes.
    axes = len(leading)
    if axes > 1 and any(len(x) == axes + 2 and [*x[:axes]] == [*leading] for x in given):
        return layouts[0] if layouts else None
    batches = _batches(given, sizes)
    fitting = [layout for layout in layouts if layout.batch in batches]
    if axes > 1 and heads is not None and len(layouts) == 1:
        return layouts[0] if layouts[0].heads == heads or fitting else None
    return fitting[0] if len(fitting) == 1 and not fitting[0].heads_first else None


def _sequences(
    values: Float[Tensor, "*leading keys dim"], running: Sequence[Frame]
) -> list[int] | None:
    """Return the sequence of each row of values, if their numbers tell it."""
    return _told(values.flatten(0, -3), running)


def _sequences_of_either(
    value: Float[Tensor, "*leading keys dim"],
    key: Float[Tensor, "*other_leading keys key_dim"] | None,
    running: Sequence[Frame],
) -> list[int] | None:
    """Return the sequence of each row of values, if their numbers or those of keys tell it."""
    found = _sequences(value, running)
    if found is None and key is not None and key.shape[:-2].numel() == value.shape[:-2].numel():
        return _sequences(key, running)
    return found


def _told(
    rows: Float[Tensor, "rows tokens features"],
    running: Sequence[Frame],
    ends: Sequence[int] = (-1, 0),
) -> list[int] | None:
    """Return the sequence of each row, by the layers of the innermost module that tells it."""
    for number, frame in reversed([*enumerate(running)]):
        # What the model was given are sequences; what other modules get may be heads of these.
        told = frame.sequences(rows, ends, given=frame.has_layers or not number)
        if told is not None:
            return told
    return None


def _has_queries_first(
    product: Product, running: Sequence[Frame], heads: int | None, lengths: Collection[int]
) -> bool:
    """Return whether weights are [batch, queries, heads, keys], with values for all heads.

    Raises:
        ValueError: they can't be told from [batch, heads, queries, keys].
    """
    value, leading, rows = product.value, product.output.shape[:-2], product.weights.shape[-2]
    shared = value.dim() < 4 or value.shape[-3] == 1
    if len(leading) != 2 or not shared:
        return False
    if leading[1] != rows:
        if heads != rows or leading[1] not in lengths:
            return False
        if rows not in lengths or leading[0] != heads:
            return True
        # Or [heads, batch, queries, keys], of as many queries as heads.
        raise ValueError(_AMBIGUOUS.format(rows=rows))
    if rows == 1 or rows not in lengths or heads not in (None, rows):
        return False
    # As many queries as heads: the tokens of the queries tell.
    query = next((x for x in product.operands if x.shape[:-1] == product.weights.shape[:-1]), None)
    if running and query is not None:
        # The last token of each sequence, were its axis the first or the second.
        first = _told(query[:, :, 0], running, ends=(-1,)) is not None
        second = _told(query[:, 0], running, ends=(-1,)) is not None
        if first != second:
            return first
    raise ValueError(_AMBIGUOUS.format(rows=rows))


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


def _batches(given: Sequence[Sequence[int]], sizes: Sequence[int]) -> set[int]:
    """Return the possible batch sizes, which all inputs with as many features must have.

    Args:
        given: the shapes of the inputs.
        sizes: the number of queries and of keys, one of which is an axis of each input.
    """
    found: list[set[int]] = []
    for shape in given:
        if shape[-1] != given[0][-1]:
            continue
        axes = [*shape[:-1]]
        fitting: set[int] = set()
        for size in {*sizes} & {*axes}:
            rest = [*axes]
            rest.remove(size)
            fitting.update(rest or [1])
        found.append(fitting or {*axes})
    return set[int].intersection(*found) if found else set()
