"""Split a call of attention into kernel calls: a few rectangles of a strip in each.

A strip is a batch of rectangles with equally many queries and equally many keys. A kernel call gets
as many of them as fit into its memory budget:

    strip   ▒▒▒ ▒▒▒ ▒▒▒ ▒▒▒ ▒▒▒        2 calls:   ▒▒▒ ▒▒▒ ▒▒▒   and   ▒▒▒ ▒▒▒

Rows at a constant distance are strided views, which may overlap and are read in place; others are
gathered. Query heads that share a key head are folded into the rows of one head, so that keys are
never repeated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention import kernels
from regard.attention.inputs import AttentionInputs
from regard.attention.kernels import AdjustScores, KernelCall
from regard.patterns import Layout
from regard.patterns.layout import Strip, StripRows

_BYTES_AT_ONCE = {"cpu": 16 << 20}
_BYTES_AT_ONCE_ELSEWHERE = 512 << 20
"""Memory budget of one kernel call. On the CPU it should fit into the cache."""

HeadRows = Float[Tensor, "heads sequence dim"]
"""The rows of all heads, in one sequence of the batch."""

RectangleRows = Float[Tensor, "rectangles heads count dim"]
"""Some of these rows for each rectangle."""


@dataclass(frozen=True)
class StripCall:
    """One kernel call: some rectangles of a strip, in one sequence of the batch.

    Attributes:
        strip: the rectangles.
        batch: the sequence.
        call: the arguments of the kernel, with grouped heads folded into rows.
        group: number of query heads per key head.
    """

    strip: Strip
    batch: int
    call: KernelCall
    group: int

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return output and log-sum-exp, [rectangles, heads, queries, dim or 1]."""
        output, lse = kernels.forward(self.call)
        return _unfold(output, self.group), _unfold(lse, self.group)

    def backward(
        self, grad: Tensor, output: Tensor, lse: Tensor, learned: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """Return the gradients of query, key, value and the learned bias tensors."""
        grad, output, lse = (_fold(x, self.group) for x in (grad, output, lse))
        query, *others = kernels.backward(self.call, grad, output, lse, learned)
        return (_unfold(query, self.group), *others)


def writes_scores(inputs: AttentionInputs) -> bool:
    """Whether scores must be materialised, because no fused kernel supports the bias."""
    if inputs.bias is None:
        return False
    return not inputs.bias.additive or any(tensor.requires_grad for tensor in inputs.bias.tensors)


def kernel_calls(
    inputs: AttentionInputs,
    layout: Layout,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool,
    backward: bool,
) -> Iterator[StripCall]:
    """Split a call into kernel calls.

    Args:
        inputs: the inputs.
        layout: its strips.
        query: [batch, heads, queries, dim]; dim is that of the call, or more.
        key: [batch, key_heads, keys, dim].
        value: [batch, key_heads, keys, dim].
        causal: whether to use the kernel's causal mask.
        backward: whether gradients are computed, which takes more memory.
    """
    gathered = (s.num_rectangles * s.keys.count for s in layout.strips if s.keys.pitch is None)
    if sum(gathered) > inputs.num_keys:
        # Gathering is faster if the heads of a row are contiguous.
        key, value = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (key, value))

    bias_per_sequence = inputs.bias is not None and inputs.bias.batch_size is not None
    for whole_strip in layout.strips:
        for strip in _split_to_budget(inputs, whole_strip, backward):
            sequences = range(inputs.batch) if strip.batch is None else [strip.batch]
            mask = adjust = None
            for batch in sequences:
                # Sequences share the mask unless they have biases of their own.
                if batch == sequences[0] or bias_per_sequence:
                    if writes_scores(inputs):
                        adjust = _adjust_scores(inputs, layout, strip, batch)
                    else:
                        mask = _additive_mask(inputs, layout, strip, batch)
                call = KernelCall(
                    _fold(take_rows(query[batch], strip.queries), inputs.group),
                    take_rows(key[batch], strip.keys),
                    take_rows(value[batch], strip.keys),
                    mask,
                    causal,
                    inputs.scale,
                    adjust,
                )
                yield StripCall(strip, batch, call, inputs.group)


def _split_to_budget(inputs: AttentionInputs, strip: Strip, backward: bool) -> Iterator[Strip]:
    """Split a strip so that each kernel call stays within the memory budget."""
    num_queries, num_keys = strip.queries.count, strip.keys.count
    dim = max(inputs.key.shape[-1], inputs.value.shape[-1])
    budget = _BYTES_AT_ONCE.get(inputs.query.device.type, _BYTES_AT_ONCE_ELSEWHERE)
    budget //= inputs.query.element_size()

    # 1. Numbers per query row: its output, and what is materialised of its scores or mask.
    output_row = inputs.num_heads * dim
    score_row = 0
    if writes_scores(inputs):
        score_row = 4 * num_keys * inputs.num_heads
    elif inputs.bias is not None:
        score_row = num_keys * inputs.num_heads
    elif strip.pattern is not None:
        score_row = 2 * num_keys

    # 2. Numbers per rectangle: its keys and values if they are copied, or their gradients.
    copies_keys = backward or strip.keys.pitch is None
    key_rows = 2 * num_keys * inputs.key.shape[1] * dim if copies_keys else 0

    # 3. A fused kernel handles a large rectangle; materialised scores or masks must be split.
    rectangles = max(1, budget // (key_rows + num_queries * (output_row + score_row)))
    rows = max(1, budget // score_row) if score_row else num_queries
    for first in range(0, strip.num_rectangles, rectangles):
        for row in range(0, num_queries, rows):
            yield strip[first : first + rectangles].of_queries(row, rows)


def _additive_mask(
    inputs: AttentionInputs, layout: Layout, strip: Strip, batch: int
) -> Float[Tensor, "rectangles heads queries keys"] | None:
    """Return the additive mask of a strip: bias, and −inf where a pair is masked.

    The axes of rectangles and heads have length 1 where all are equal.
    """
    allowed = _allowed(inputs, layout, strip, batch)
    zero = torch.zeros((), dtype=inputs.lse_dtype, device=inputs.query.device)
    if inputs.bias is None:
        if allowed is None:
            return None
        return torch.where(allowed, zero, -torch.inf).repeat(1, 1, inputs.group, 1)

    biased = strip[:1] if _same_distance(inputs, strip) else strip
    positions = _positions_of(inputs, layout, biased, batch)
    shape = (biased.num_rectangles, inputs.num_heads, strip.queries.count, strip.keys.count)
    mask = inputs.bias.adjust(zero, *positions).expand(shape)
    if allowed is not None:
        mask = mask.masked_fill(~allowed, -torch.inf)
    return _fold(mask, inputs.group)


def _adjust_scores(
    inputs: AttentionInputs, layout: Layout, strip: Strip, batch: int
) -> AdjustScores:
    """Return the function from products to scores, with heads folded as in the kernel call."""
    bias = inputs.bias
    assert bias is not None
    allowed = _allowed(inputs, layout, strip, batch)
    positions = _positions_of(inputs, layout, strip, batch)

    def adjust(products: Tensor) -> Tensor:
        scores = bias.adjust(_unfold(products, inputs.group), *positions)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        return _fold(scores, inputs.group)

    return adjust


def _allowed(
    inputs: AttentionInputs, layout: Layout, strip: Strip, batch: int
) -> Bool[Tensor, "rectangles 1 queries keys"] | None:
    positions, device = layout.query_positions, inputs.query.device
    allowed = strip.allowed(positions, batch, device, layout.key_positions)
    return None if allowed is None else allowed[:, None]


def _positions_of(
    inputs: AttentionInputs, layout: Layout, strip: Strip, batch: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return batch, head, query position and key position of the scores, broadcastable."""
    device = inputs.query.device
    return (
        torch.tensor(batch, device=device),
        torch.arange(inputs.num_heads, device=device)[:, None, None],
        strip.queries.positions(layout.query_positions, device)[:, None, :, None],
        strip.keys.positions(layout.key_positions, device)[:, None, None, :],
    )


def _same_distance(inputs: AttentionInputs, strip: Strip) -> bool:
    """Whether a relative bias is the same in every rectangle."""
    assert inputs.bias is not None
    if not inputs.bias.relative or strip.queries.table is not None or strip.keys.table is not None:
        return False
    distance = strip.keys.start - strip.queries.start
    return inputs.first_position is not None and bool((distance == distance[0]).all())


def _fold(x: Tensor, group: int) -> Tensor:
    """Fold query heads that share a key head into rows: [r, h·group, n, d] → [r, h, group·n, d]."""
    return x if group == 1 else x.unflatten(1, (-1, group)).flatten(2, 3)


def _unfold(x: Tensor, group: int) -> Tensor:
    return x if group == 1 else x.unflatten(2, (group, -1)).flatten(1, 2)


def take_rows(x: HeadRows, rows: StripRows) -> RectangleRows:
    """Return the rows of each rectangle; regular rows are a view that may overlap itself."""
    if rows.pitch is not None:
        return _view(x, rows)
    index = rows.index().to(x.device)
    gathered = x.transpose(0, 1).index_select(0, index.flatten())
    return gathered.view(*index.shape, *gathered.shape[1:]).transpose(1, 2)


def put_rows(x: HeadRows, rows: StripRows, values: RectangleRows) -> None:
    """Write the rows of each rectangle; no row may be in two of them."""
    if rows.pitch is not None:
        _view(x, rows).copy_(values)
    else:
        index = rows.index().to(x.device)
        x.transpose(0, 1)[index] = values.transpose(1, 2).to(x.dtype)


def add_to_rows(x: HeadRows, rows: StripRows, values: RectangleRows) -> None:
    """Add to the rows of each rectangle; a row may be in several of them.

    In memory, x must be [sequence, heads, dim].
    """
    width = _disjoint_width(rows)
    if width is not None:
        for first in range(0, rows.count, width):
            part = rows.part(first, min(width, rows.count - first))
            _view(x, part).add_(values[:, :, first : first + width])
        return

    index = rows.index().to(x.device).flatten()
    heads, length, dim = x.shape
    flat = x.transpose(0, 1).view(length, heads * dim)
    values = values.transpose(1, 2).reshape(len(index), heads * dim).to(x.dtype)
    flat.scatter_add_(0, index[:, None].expand(-1, heads * dim), values)


def _view(x: Tensor, rows: StripRows) -> Tensor:
    assert rows.pitch is not None
    head, row, dim = x.stride()
    return x.as_strided(
        (len(rows.start), x.shape[0], rows.count, x.shape[2]),
        (rows.pitch * row, head, rows.step * row, dim),
        x.storage_offset() + int(rows.start[0]) * row,
    )


def _disjoint_width(rows: StripRows) -> int | None:
    """Return how many rows of each rectangle can be written at once without overlap."""
    if rows.pitch is None:
        return None
    num_rectangles = len(rows.start)
    if num_rectangles == 1 or 0 < rows.pitch * num_rectangles <= rows.step:
        return rows.count
    if rows.pitch and rows.pitch % rows.step == 0:
        return rows.pitch // rows.step
    return None
