"""A step of generation: a few queries at the end of the keys, prepared once for all layers.

A query that is alone needs no layout of blocks, only the keys that it may attend to: a slice, which
copies nothing, or a list of them, if they are few. Of the step at position 9:

    keys                             0 1 2 3 4 5 6 7 8 9
    causal & window(before=3)        · · · · · · ■ ■ ■ ■     the slice 6:10, no mask
    … | global_at([4])               · · · · ■ · ■ ■ ■ ■     the slice 4:10, and a mask
    … | global_at([0])               ■ · · · · · ■ ■ ■ ■     the slice 0:10, and a mask

For one query, checking the arguments would take as long as the kernel. So everything that depends
only on their shapes and on the pattern is cached with the pattern: the first layer checks its
arguments and caches the step (`cache_step`), the others find it by their shapes (`cached_step`).

Cost, one thread, 4 heads of 64, one query with 1,024 of 4,096 keys: the kernel 144 µs, a cached
step 218, with the checks 349. A step with a bias, dropout, or the plain causal pattern, for which
the kernel needs no mask, is not cached.
"""

from typing import Any, NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from regard.attention.inputs import AttentionInputs, autocasts, default_scale
from regard.patterns import Pattern
from regard.patterns.dense_keys import MAX_DENSE_QUERIES, dense_keys
from regard.patterns.layout_cache import cached
from regard.patterns.pattern import Everyone
from regard.patterns.regular import Causal


class DecodeStep(NamedTuple):
    """A call for a few queries.

    Attributes:
        keys: the keys that any query may attend to, and perhaps some between them.
        mask: which of these each query may attend to; None if all.
        scale: factor on the scores.
        grouped: whether query heads share key heads.
    """

    keys: slice | Int[Tensor, "some_keys"]
    mask: Bool[Tensor, "batch_or_1 1 queries some_keys"] | None
    scale: float
    grouped: bool

    def __call__(
        self,
        query: Float[Tensor, "batch heads queries dim"],
        key: Float[Tensor, "batch key_heads keys dim"],
        value: Float[Tensor, "batch key_heads keys dim"],
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Return the output of attention."""
        if isinstance(self.keys, slice):
            key, value = key[:, :, self.keys], value[:, :, self.keys]
        else:
            key, value = (tensor.index_select(2, self.keys) for tensor in (key, value))
        return scaled_dot_product_attention(
            query, key, value, attn_mask=self.mask, scale=self.scale, enable_gqa=self.grouped
        )

    @property
    def num_keys(self) -> int:
        if isinstance(self.keys, slice):
            return self.keys.stop - self.keys.start
        return len(self.keys)


def decode_step(inputs: AttentionInputs) -> DecodeStep | None:
    """Return a call as a step, or None if it has a bias or many queries."""
    first, plain = inputs.first_position, isinstance(inputs.pattern, Everyone | Causal)
    if first is None or plain or inputs.bias is not None or inputs.num_queries > MAX_DENSE_QUERIES:
        return None
    allowed = dense_keys(
        inputs.pattern, first, inputs.num_queries, inputs.num_keys, inputs.query.device
    )
    mask = None if allowed.mask is None else allowed.mask[:, None]
    return DecodeStep(allowed.keys, mask, inputs.scale, inputs.group > 1)


def cache_step(inputs: AttentionInputs) -> None:
    """Cache the step of this call for `cached_step`, if its queries are the last positions."""
    is_last = inputs.first_position == inputs.num_keys - inputs.num_queries
    if not is_last or inputs.dropout or inputs.key.shape[-1] != inputs.value.shape[-1]:
        return
    step = decode_step(inputs)
    if step is not None:
        is_default = inputs.scale == default_scale(inputs.key.shape[-1])
        name = _name(inputs.query, inputs.key, inputs.value, None if is_default else inputs.scale)
        cached(inputs.pattern, name, lambda: step)


def cached_step(
    query: Tensor, key: Tensor, value: Tensor, pattern: object, scale: Any, positions: Any
) -> DecodeStep | None:
    """Return the cached step of a call with unchecked arguments, if any."""
    cached_values = vars(pattern).get("_made") if isinstance(pattern, Pattern) else None
    if not cached_values or not query.dtype == key.dtype == value.dtype:
        return None
    if positions is not None and not _is_last(positions, query, key):
        return None
    step = cached_values.get(_name(query, key, value, scale))
    if step is None or not query.device == key.device == value.device:
        return None
    return None if autocasts(query.device) else step


def _name(query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> tuple[Any, ...]:
    """Return the cache key of a step: all that it depends on besides its pattern."""
    return "step", query.shape, key.shape, value.shape, query.dtype, query.device, scale


def _is_last(positions: object, query: Tensor, key: Tensor) -> bool:
    """Return whether `positions` puts the last query at the position of the last key."""
    if type(positions) is not int or not query.dim() == key.dim() == 4:
        return False
    return positions == key.shape[2] - query.shape[2]
