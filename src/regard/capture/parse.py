"""Interpret a captured call: pattern, positions and bias."""

from dataclasses import dataclass, replace

import torch.nn.functional as F
from torch import Tensor

from regard.attention.call import Attention, autocasted, autocasts
from regard.capture.call import KernelCall
from regard.capture.masks import Masks, ParsedMask, Sizes, Spans
from regard.patterns import Pattern
from regard.patterns.from_mask import FromMask
from regard.patterns.integers import is_consecutive
from regard.patterns.pattern import Both, Everyone, Remapped, intersect
from regard.patterns.regular import Causal
from regard.patterns.remapped import remapped
from regard.positions import Bias, from_tensor
from regard.positions.bias import compose
from regard.positions.from_tensor import FromTensor


@dataclass(frozen=True, eq=False)
class ParsedCall:
    """An interpreted call.

    Attributes:
        call: its queries and keys, pattern, bias, sinks and positions.
        placed: whether its caller says where its queries are.
        mask_known: whether all masked pairs are known.
    """

    call: Attention
    placed: bool
    mask_known: bool

    @property
    def first_query(self) -> int | None:
        """The position of the first query in the text, if the call itself says it.

        It does by as many queries as keys, by a position that it is given, or by a causal mask,
        whose diagonal shows at which key each query stands. One row has no diagonal. Elsewhere
        `call` has a convention: the last query has the position of the last key.
        """
        call = self.call
        if self.placed or call.num_queries == call.num_keys:
            return call.first_position
        return None if call.num_queries < 2 else _diagonal(call)


def autocast_inputs(caught: KernelCall) -> KernelCall:
    """Return a call with its tensors in autocast's dtype."""
    if not autocasts(caught.query.device):
        return caught
    query, key, value = autocasted(caught.query, caught.key, caught.value)
    return replace(caught, query=query, key=key, value=value)


def parse_call(caught: KernelCall, masks: Masks, *, cross: bool) -> ParsedCall:
    """Interpret a call.

    Args:
        caught: the call.
        masks: converts its mask.
        cross: whether it is known to be cross-attention.

    Raises:
        ValueError: it is not supported.
    """
    query, key = caught.query, caught.key
    batch, heads, queries, _ = query.shape
    sizes = Sizes(batch, heads, queries, key.shape[2])
    parsed = masks.read(caught.mask, sizes, cross=cross)

    # Positions, and numbers that are added to the scores by them.
    positions = parsed.first_query if caught.first_query is None else caught.first_query
    if isinstance(positions, int):
        parsed = counted_from(parsed, positions)
    added: Bias | None = None
    if caught.added is not None:
        first = positions
        if isinstance(first, Tensor):
            if not is_consecutive(first):
                raise ValueError("a score bias needs consecutive query positions")
            first = int(first[0])
        numbers = caught.added.expand(-1, -1, sizes.queries, -1)[..., : sizes.keys]
        added = from_tensor(numbers, first_query=first)

    known = None if isinstance(parsed.pattern, Everyone) else parsed.pattern
    bias = compose(compose(caught.bias, added), parsed.bias)
    pattern = intersect(known, caught.pattern)
    call = Attention.checked(query, key, None, pattern, bias, caught.scale, 0.0, positions)
    if caught.sinks is not None:
        call = replace(call, sinks=caught.sinks)
    return ParsedCall(call, caught.placed, parsed.mask_known)


def counted_from(parsed: ParsedMask, first_query: int) -> ParsedMask:
    """Return a parsed mask with another position of the first query."""
    shift = parsed.first_query - first_query
    if not shift:
        return parsed
    bias = parsed.bias
    if isinstance(bias, FromTensor):
        bias = replace(bias, first_query=first_query)
    pattern = parsed.pattern
    if isinstance(pattern, FromMask) and shift > 0:
        # Its last row has the position of the last key: add rows that no query has.
        pattern = FromMask(F.pad(pattern.mask, (0, 0, 0, shift)), pattern.batched)
    elif not pattern.key_only:
        pattern = remapped(pattern, shift)
    return replace(parsed, pattern=pattern, bias=bias, first_query=first_query)


def _diagonal(inputs: Attention) -> int | None:
    """Return the position of the first query by the diagonal of a causal mask, if it is one."""
    pattern = inputs.pattern
    if is_causal(pattern):
        return inputs.first_position
    if pattern.key_only:
        return None
    # Of a mask_mod, in whose own positions queries are counted from 0.
    spans = Spans.of(pattern.dense(inputs.query_positions, inputs.num_keys))
    placed = None if spans is None else spans.to_pattern(inputs.batch, cross=False)
    return placed.first_query if placed is not None and is_causal(placed.pattern) else None


def is_causal(pattern: Pattern) -> bool:
    """Return whether a pattern is causal, or a part of a causal one."""
    if isinstance(pattern, Both):
        return is_causal(pattern.first) or is_causal(pattern.second)
    if isinstance(pattern, Remapped):
        return not pattern.exchanged and is_causal(pattern.pattern)
    return isinstance(pattern, Causal)
