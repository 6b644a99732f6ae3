"""Split a call into pieces: a few rectangles per kernel call."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention import eager, kernels
from regard.attention.inputs import AttentionInputs
from regard.attention.rows import take
from regard.patterns import Layout
from regard.patterns.layout import Strip

_BYTES_AT_ONCE = {"cpu": 16 << 20}
_BYTES_AT_ONCE_ELSEWHERE = 512 << 20
"""Memory budget of one kernel call. On the CPU it should fit into the cache."""


@dataclass(frozen=True)
class Task:
    """One kernel call: some rectangles of a strip, in one sequence of the batch.

    Query heads that share a key head are folded into rows, so that keys are never repeated.
    """

    strip: Strip
    batch: int
    piece: kernels.Piece
    adjust: eager.Adjust | None
    group: int

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return output and log-sum-exp, [rectangles, heads, queries, dim or 1]."""
        if self.adjust is None:
            output, lse = kernels.forward(self.piece)
        else:
            output, lse = eager.forward(self.piece, self.adjust)
        return _unfold(output, self.group), _unfold(lse, self.group)

    def backward(
        self, grad: Tensor, output: Tensor, lse: Tensor, learned: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """Return the gradients of query, key, value and the learned bias tensors."""
        grad, output, lse = (_fold(x, self.group) for x in (grad, output, lse))
        if self.adjust is None:
            query, *others = kernels.backward(self.piece, grad, output, lse)
        else:
            query, *others = eager.backward(self.piece, self.adjust, grad, output, lse, learned)
        return (_unfold(query, self.group), *others)


def writes_scores(inputs: AttentionInputs) -> bool:
    """Whether scores must be materialised, because no fused kernel supports the bias."""
    if inputs.bias is None:
        return False
    return not inputs.bias.additive or any(tensor.requires_grad for tensor in inputs.bias.tensors)


def tasks(
    inputs: AttentionInputs,
    layout: Layout,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool,
    backward: bool,
) -> Iterator[Task]:
    """Split a call into tasks.

    Args:
        inputs: the inputs.
        layout: its strips.
        query: [batch, heads, queries, dim]; dim is that of the call, or more.
        key: [batch, key_heads, keys, dim].
        value: [batch, key_heads, keys, dim].
        causal: whether to use the kernel's causal mask.
        backward: whether the tasks compute gradients, which take more memory.
    """
    gathered = (s.num_rectangles * s.keys.count for s in layout.strips if s.keys.pitch is None)
    if sum(gathered) > inputs.num_keys:
        # Gathering is faster if the heads of a row are contiguous.
        key, value = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (key, value))
    per_sequence = inputs.bias is not None and inputs.bias.batch_size is not None
    for bite in (bite for strip in layout.strips for bite in _bites(inputs, strip, backward)):
        sequences = range(inputs.batch) if bite.batch is None else [bite.batch]
        mask = adjust = None
        for batch in sequences:
            if batch == sequences[0] or per_sequence:
                if writes_scores(inputs):
                    adjust = _adjust(inputs, layout, bite, batch)
                else:
                    mask = _additive_mask(inputs, layout, bite, batch)
            piece = kernels.Piece(
                _fold(take(query[batch], bite.queries), inputs.group),
                take(key[batch], bite.keys),
                take(value[batch], bite.keys),
                mask,
                causal,
                inputs.scale,
            )
            yield Task(bite, batch, piece, adjust, inputs.group)


def _bites(inputs: AttentionInputs, strip: Strip, backward: bool) -> Iterator[Strip]:
    """Split a strip so that each kernel call stays within the memory budget."""
    num_queries, num_keys = strip.queries.count, strip.keys.count
    width = max(inputs.key.shape[-1], inputs.value.shape[-1])
    budget = _BYTES_AT_ONCE.get(inputs.query.device.type, _BYTES_AT_ONCE_ELSEWHERE)
    budget //= inputs.query.element_size()
    per_row = inputs.num_heads * width
    gathered = backward or strip.keys.pitch is None
    per_rectangle = 2 * num_keys * inputs.key.shape[1] * width if gathered else 0
    scores = 0
    if writes_scores(inputs):
        scores = 4 * num_keys * inputs.num_heads
    elif inputs.bias is not None:
        scores = num_keys * inputs.num_heads
    elif strip.pattern is not None:
        scores = 2 * num_keys

    some = max(1, budget // (per_rectangle + num_queries * (per_row + scores)))
    # A fused kernel handles a large rectangle; materialised scores or masks must be split.
    rows = max(1, budget // scores) if scores else num_queries
    for first in range(0, strip.num_rectangles, some):
        for row in range(0, num_queries, rows):
            yield strip[first : first + some].of_queries(row, rows)


def _additive_mask(
    inputs: AttentionInputs, layout: Layout, strip: Strip, batch: int
) -> Float[Tensor, "rectangles heads queries keys"] | None:
    """Return the additive mask of a strip: bias, and −inf where a pair is masked.

    The axes of rectangles and heads have length 1 where all are equal.
    """
    allowed = _allowed(inputs, layout, strip, batch)
    zero = torch.zeros((), dtype=inputs.lse_dtype, device=inputs.query.device)
    if inputs.bias is not None:
        places = _places(
            inputs, layout, strip[:1] if _same_distance(inputs, strip) else strip, batch
        )
        added = inputs.bias.adjust(zero, *places)
        shape = (places[2].shape[0], inputs.num_heads, strip.queries.count, strip.keys.count)
        added = added.expand(shape)
        if allowed is not None:
            added = added.masked_fill(~allowed, -torch.inf)
        return _fold(added, inputs.group)
    if allowed is None:
        return None
    return torch.where(allowed, zero, -torch.inf).repeat(1, 1, inputs.group, 1)


def _adjust(inputs: AttentionInputs, layout: Layout, strip: Strip, batch: int) -> eager.Adjust:
    """Return the function from products to scores, with heads folded as in the piece."""
    bias = inputs.bias
    assert bias is not None
    allowed = _allowed(inputs, layout, strip, batch)
    places = _places(inputs, layout, strip, batch)

    def adjust(products: Tensor) -> Tensor:
        scores = bias.adjust(_unfold(products, inputs.group), *places)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        return _fold(scores, inputs.group)

    return adjust


def _allowed(
    inputs: AttentionInputs, layout: Layout, strip: Strip, batch: int
) -> Bool[Tensor, "rectangles 1 queries keys"] | None:
    allowed = strip.allowed(layout.query_positions, batch, inputs.query.device)
    return None if allowed is None else allowed[:, None]


def _places(
    inputs: AttentionInputs, layout: Layout, strip: Strip, batch: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return batch, head, query position and key position of the scores, broadcastable."""
    device = inputs.query.device
    return (
        torch.tensor(batch, device=device),
        torch.arange(inputs.num_heads, device=device)[:, None, None],
        layout.query_positions[strip.queries.index()].to(device)[:, None, :, None],
        strip.keys.index().to(device)[:, None, None, :],
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
