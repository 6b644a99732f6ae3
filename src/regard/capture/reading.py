"""Find the axes of explicit weights: queries, keys, sequences and heads.

A module with its own attention code lays out weights as it likes, and nothing names their axes. The
product with values sums over the keys (`product`). The other axes may be, with queries q, keys k:

    weights                     values
    [batch, heads, q, k]        [batch, heads, k, dim]        most models
    [batch · heads, q, k]       [batch · heads, k, dim]       sequences first, in one axis
    [heads · batch, q, k]       [heads · batch, k, dim]       heads first, in one axis
    [heads, batch, q, k]        [heads, batch, k, dim]
    [batch, q, heads, k]        [batch, k, dim]               all heads share values
    [..., heads, q, k]          [..., heads, k, dim]          windows or chunks of sequences

1. Queries have as many rows as the module was given tokens. If neither an axis of its inputs nor a
   product of neighbouring ones, such as height · width, has that size, the weights are a part of
   its attention: refused (`InParts`). If the heads are as many as the queries, two axes could be
   theirs; the last token of each sequence tells them apart (point 3), or they are refused.
2. The number of heads, an attribute of the module or of the caller with its linear layers, leaves
   one or two layouts of the leading axes.
3. Numbers decide between these. Each row of the values was made from the tokens of one sequence, by
   a linear layer whose result is known (`projected_tokens`). For 2 sequences and 3 heads:

       row         0  1  2  3  4  5
       sequence    0  0  0  1  1  1        [batch · heads]
       sequence    0  1  0  1  0  1        [heads · batch]

4. If the numbers don't tell, as after a normalisation of keys and values, sizes may: an input
   [batch, heads, q, features] has the order of the axes; of several axes, the last may be the only
   one of the module's number of heads; or one layout alone has as many sequences as the inputs.
   Heads first, in one axis with the sequences, is never assumed: it takes point 3.

Without evidence, heads are unknown: the batch axis then has sequences and heads.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
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

    Args:
        product: the product of weights and values.
        running: the running modules, the innermost last.
        num_heads: the number of heads, if known.

    Raises:
        InParts: the number of rows differs from the module's tokens, as in block-sparse or chunked
            attention.
        ValueError: queries and heads can't be told apart.
    """
    weights, num_keys = product.weights, product.weights.shape[-1]
    input_shapes = _shapes(running)
    token_counts = _token_counts(_without_masks(input_shapes, weights.shape))
    heads = num_heads or _heads_of(running)
    tensors = {"weights": weights, "output": product.output}
    if product.view is not None:
        tensors["view"] = product.view
    if product.mask is not None and product.mask.masked is not None:
        tensors["masked"] = product.mask.masked

    # 1. The axis of queries.
    leading, rows = [*product.output.shape[:-2]], weights.shape[-2]
    if _has_queries_first(product, running, heads, token_counts):
        # [batch, queries, heads, keys], with values shared by all heads.
        tensors = {name: x.transpose(1, 2) for name, x in tensors.items()}
        leading, rows = [leading[0], rows], leading[1]
    if input_shapes and rows != 1 and rows not in token_counts:
        sizes = ", ".join(" × ".join(map(str, shape)) for shape in input_shapes[:3])
        raise InParts(
            f"block-sparse or chunked attention, or queries of the module's own: a softmax has "
            f"{rows} rows where the module was given {sizes}"
        )
    tensors["value"] = product.value
    tensors = {name: x.expand(*leading, *x.shape[-2:]) for name, x in tensors.items()}

    # 2. The possible layouts of sequences and heads.
    softmax_shape = [*(product.softmax_shape or ())]
    if len(leading) == 1 and product.in_order and softmax_shape[-2:] == [*weights.shape[-2:]]:
        # The softmax may have had more axes, which were flattened later.
        axes = softmax_shape[:-2]
        leading = axes if prod(axes) == leading[0] else leading
    layouts = _layouts(leading, heads)

    # 3. The one for which there is evidence.
    def row_sequences() -> list[int] | None:
        sequences = _row_sequences(tensors["value"], running)
        key = key_of(product.operands, num_keys)
        if sequences is None and key is not None and key.shape[:-2].numel() == prod(leading):
            return _row_sequences(key, running)
        return sequences

    if num_heads is not None:
        # nn.MultiheadAttention, whose batch comes first.
        layout = layouts[0] if layouts else None
    else:
        sizes = (rows, num_keys)
        caller_shapes = _shapes(_callers(running))
        layout = _choose_layout(layouts, leading, heads, sizes, caller_shapes, row_sequences)

    # 4. Name the axes.
    batch, count = (prod(leading), 1) if layout is None else (layout.batch, layout.heads)
    named: dict[str, Any] = {}
    for name, x in tensors.items():
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

    A kernel takes them as such, but its caller may have other axes there. Evidence against it is a
    module with another number of heads, or values whose numbers are those of another sequence.

    Args:
        query: the queries.
        value: the values.
        running: the running modules, the innermost last.
    """
    batch, heads = query.shape[:2]
    num_heads = _heads_of(running)
    if num_heads is not None and num_heads > 1 and heads == 1:
        return False
    sizes = (query.shape[2], value.shape[2])
    if num_heads == batch != heads and heads in _batch_sizes(_shapes(_callers(running)), sizes):
        return False
    try:
        sequences = _row_sequences(value, running) if batch > 1 else None
    except ValueError:
        return False
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
    """Sizes and order of sequences and heads in the leading axes of weights."""

    batch: int
    heads: int
    heads_first: bool = False

    def agrees(self, sequences: Sequence[int], *, parts: bool = False) -> bool:
        """Return whether rows of one sequence in this layout have the numbers of one sequence.

        Args:
            sequences: the sequence of each row by its numbers.
            parts: whether several of its sequences may be parts of one, such as windows.
        """
        rows = range(self.batch * self.heads)
        expected = [row % self.batch if self.heads_first else row // self.heads for row in rows]
        pairs = {*zip(expected, sequences, strict=True)}
        return len(pairs) == self.batch and (parts or len({*sequences}) == self.batch)


def _layouts(leading: Sequence[int], heads: int | None) -> list[_Layout]:
    """Return the possible layouts of leading axes, the most usual first.

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


def _choose_layout(
    layouts: Sequence[_Layout],
    leading: Sequence[int],
    heads: int | None,
    sizes: tuple[int, int],
    input_shapes: Sequence[Sequence[int]],
    row_sequences: Callable[[], list[int] | None],
) -> _Layout | None:
    """Return the layout for which there is evidence; None if it is unknown.

    Args:
        layouts: the possible layouts by the sizes of the axes.
        leading: the sizes of the axes.
        heads: the number of heads that the module has, if known.
        sizes: the number of queries and of keys.
        input_shapes: the shapes of the inputs of the module with the linear layers.
        row_sequences: returns the sequence of each row of the values, if their numbers tell it.
    """
    if not leading or not input_shapes:
        return layouts[0] if layouts else None

    # The numbers of the values, if they tell it, decide alone.
    sequences = row_sequences() if prod(leading) > 1 else None
    if sequences is not None:
        parts = len(leading) > 2
        return next((layout for layout in layouts if layout.agrees(sequences, parts=parts)), None)

    # An input [batch, heads, queries, features] has the order of the axes.
    axes = len(leading)
    if axes > 1 and any(len(x) == axes + 2 and [*x[:axes]] == [*leading] for x in input_shapes):
        return layouts[0] if layouts else None

    # The batch size of the inputs leaves one layout, or none is known.
    batch_sizes = _batch_sizes(input_shapes, sizes)
    fitting = [layout for layout in layouts if layout.batch in batch_sizes]
    if axes > 1 and heads is not None and len(layouts) == 1:
        return layouts[0] if layouts[0].heads == heads or fitting else None
    return fitting[0] if len(fitting) == 1 and not fitting[0].heads_first else None


def _row_sequences(
    rows: Float[Tensor, "*leading tokens features"],
    running: Sequence[Frame],
    ends: Sequence[int] = (-1, 0),
) -> list[int] | None:
    """Return the sequence of each row, by the layers of the innermost module that tells it.

    Args:
        rows: values, keys or queries.
        running: the running modules, the innermost last.
        ends: the compared tokens of each row; see `ProjectedTokens.sequences`.
    """
    rows = rows.flatten(0, -3)
    for number, frame in reversed([*enumerate(running)]):
        # The inputs of the model are sequences; those of other modules may be heads of these.
        sequences = frame.sequences(rows, ends, given=frame.has_layers or not number)
        if sequences is not None:
            return sequences
    return None


def _has_queries_first(
    product: Product, running: Sequence[Frame], heads: int | None, token_counts: Collection[int]
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
        if heads != rows or leading[1] not in token_counts:
            return False
        if rows not in token_counts or leading[0] != heads:
            return True
        # Or [heads, batch, queries, keys], of as many queries as heads.
        raise ValueError(_AMBIGUOUS.format(rows=rows))
    if rows == 1 or rows not in token_counts or heads not in (None, rows):
        return False

    # As many queries as heads: the tokens of the queries tell.
    query = next((x for x in product.operands if x.shape[:-1] == product.weights.shape[:-1]), None)
    if running and query is not None:
        # The last token of each sequence, were its axis the first or the second.
        first = _row_sequences(query[:, :, 0], running, ends=(-1,)) is not None
        second = _row_sequences(query[:, 0], running, ends=(-1,)) is not None
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


def _without_masks(
    input_shapes: Sequence[Sequence[int]], weights_shape: Sequence[int]
) -> list[Sequence[int]]:
    """Return the shapes without those of masks and biases, which match the scores.

    The first input is never a mask.
    """
    rows = [*weights_shape[-2:]]
    later = (shape for shape in input_shapes[1:] if len(shape) < 4 or [*shape[-2:]] != rows)
    return [*input_shapes[:1], *later]


def _token_counts(input_shapes: Sequence[Sequence[int]]) -> set[int]:
    """Return the possible numbers of tokens: sizes of axes, and products of neighbouring ones."""
    return {
        prod(shape[start:stop])
        for shape in input_shapes
        for start in range(len(shape))
        for stop in range(start + 1, len(shape) + 1)
        # The last axis has features.
        if start < len(shape) - 1
    }


def _batch_sizes(input_shapes: Sequence[Sequence[int]], sizes: Sequence[int]) -> set[int]:
    """Return the possible batch sizes, which all inputs with as many features must have.

    Args:
        input_shapes: the shapes of the inputs.
        sizes: the number of queries and of keys, one of which is an axis of each input.
    """
    by_input: list[set[int]] = []
    for shape in input_shapes:
        if shape[-1] != input_shapes[0][-1]:
            continue
        axes = [*shape[:-1]]
        fitting: set[int] = set()
        for size in {*sizes} & {*axes}:
            others = [*axes]
            others.remove(size)
            fitting.update(others or [1])
        by_input.append(fitting or {*axes})
    return set[int].intersection(*by_input) if by_input else set()
