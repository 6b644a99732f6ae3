"""Masks of transformers as patterns.

transformers describes a mask by a function of two positions, composed of a few functions of its
own. Those are recognised here: the mask becomes a `PatternMask`, which passes through the model
like a tensor and reaches `attention` as a pattern. An unknown function, such as a user's, becomes
the dense mask that transformers' own kernels get.

Models with attention code of their own may get these masks too, and may take them for additive
ones. So both kinds, `PatternMask` and the dense `BooleanMask`, raise if numbers are computed from
them.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.internals import tree_map, uncompiled
from regard.patterns import Pattern, causal, documents, everyone, padding, window

MaskFunction = Callable[[Any, Any, Any, Any], Any]


@uncompiled
def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: MaskFunction | None = None,
    attention_mask: Tensor | None = None,
    device: torch.device | str = "cpu",
    **others: Any,
) -> Tensor:
    """Make the mask of a call, with the signature of transformers' mask functions.

    Args:
        batch_size: number of sequences.
        q_length: number of queries.
        kv_length: number of keys.
        q_offset: position of the first query.
        kv_offset: position of the first key; not 0 if old keys were dropped.
        mask_function: whether a pair of positions is allowed; causal by default.
        attention_mask: False for padding, [batch, positions].
        device: device of the mask.
        others: arguments for transformers' own functions.

    Returns:
        A `PatternMask`; a dense `BooleanMask` [batch, 1, queries, keys] if no pattern is known.
    """
    from transformers import masking_utils

    q_offset = int(q_offset)
    first_query = q_offset - kv_offset
    function = mask_function or masking_utils.causal_mask_function

    # Documents are indexed by absolute position, so no key may have been dropped.
    pattern = _recognised(function, kv_length, shifted=bool(kv_offset) or bool(first_query))
    if pattern is not None and attention_mask is not None:
        pattern = _without_padding(pattern, attention_mask, kv_offset, kv_length)
    if pattern is not None:
        return PatternMask.from_pattern(
            pattern,
            (batch_size, 1, q_length, kv_length),
            first_query=first_query,
            first_key=kv_offset,
            device=device,
        )

    skips = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    dense = masking_utils.sdpa_mask(
        batch_size=batch_size,
        q_length=q_length,
        kv_length=kv_length,
        q_offset=q_offset,
        kv_offset=kv_offset,
        mask_function=function,
        attention_mask=attention_mask,
        device=device,
        **(others | skips),
    )
    assert dense is not None
    return BooleanMask.of(dense)


def _recognised(function: MaskFunction, num_keys: int, *, shifted: bool) -> Pattern | None:
    """Return the pattern that a mask function of transformers describes, or None if unknown."""
    if getattr(function, "__module__", None) != "transformers.masking_utils":
        return None

    # A closure is named after the function that made it, and holds its arguments.
    maker = function.__qualname__.split(".")[0]
    arguments = inspect.getclosurevars(function).nonlocals
    if maker in ("and_masks", "or_masks"):
        functions = arguments["mask_functions"]
        parts = [_recognised(part, num_keys, shifted=shifted) for part in functions]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return reduce(and_ if maker == "and_masks" else or_, known)

    # Configurations say 0 of layers without a window.
    width = arguments.get("sliding_window", 0)
    match maker:
        case "causal_mask_function":
            return causal()
        case "bidirectional_mask_function":
            return everyone()
        case "packed_sequence_mask_function" if not shifted:
            return documents(arguments["packed_sequence_mask"])
        case "sliding_window_overlay" if width > 0:
            # It has no limit ahead, so it ends after the last key.
            return window(before=width - 1, after=num_keys)
        case "sliding_window_bidirectional_overlay" if width > 0:
            return window(before=width, after=width)
        case _:
            return None


def _without_padding(
    pattern: Pattern, real: Tensor, first_key: int, num_keys: int
) -> Pattern | None:
    """Return the pattern without the padding, or None if the real tokens are not contiguous."""
    real = real[:, first_key : first_key + num_keys].bool().cpu()
    if bool(real.all()) and real.shape[1] == num_keys:
        return pattern
    if not real.shape[1]:
        return None

    lengths = real.sum(dim=1)
    starts = real.int().argmax(dim=1)
    steps = real.int().diff(dim=1).abs().sum(dim=1)
    # One contiguous piece starts at most once and ends at most once.
    in_one_piece = steps <= (starts > 0).int() + 1
    if not bool(in_one_piece.all()):
        return None
    return pattern & padding(lengths, starts=starts)


_aten = torch.ops.aten
_HARMLESS = {
    # They take boolean masks.
    _aten.masked_fill,
    _aten.masked_fill_,
    _aten.where,
    # They read its shape only.
    _aten.empty_like,
    _aten.full_like,
    _aten.new_empty,
    _aten.new_full,
    _aten.new_ones,
    _aten.new_zeros,
    _aten.ones_like,
    _aten.zeros_like,
}
"""Functions that may return numbers from a mask."""

_ZEROS = {_aten.new_zeros, _aten.zeros_like}
"""Functions whose result is not guarded: zeros in a boolean mask would mean the opposite."""


class BooleanMask(Tensor):
    """A boolean mask that raises if numbers are computed from it.

    A model with its own attention code may expect an additive mask, in which 0 allows a pair. A
    boolean one would silently give wrong scores, so computing numbers from it raises. Slices and
    other masks derived from it are guarded too.
    """

    _dense_mask: Tensor | None
    _writable: bool

    @classmethod
    def of(cls, mask: Bool[Tensor, "..."], *, writable: bool = True) -> "BooleanMask":
        """Guard a mask.

        Args:
            mask: the mask.
            writable: whether it may be written to: not if it is a view of a `PatternMask`.
        """
        guarded = _new_mask(cls, mask.shape, mask.device)
        guarded._dense_mask, guarded._writable = mask, writable
        return guarded

    def dense(self) -> Bool[Tensor, "..."]:
        """Return the mask as a tensor."""
        assert self._dense_mask is not None
        return self._dense_mask

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        target = args[0] if args and isinstance(args[0], BooleanMask) else None

        # 1. Refuse calls that would take the mask for an additive one.
        writes = _writes(func)
        if writes and target is not None and not target._writable:
            raise ValueError(
                f"the model writes to its mask ({func}), which "
                'attn_implementation="regard" does not support: load it with '
                'attn_implementation="sdpa"'
            )
        if _adds_numbers(func, args):
            raise ValueError(
                f"the model extends its mask ({func}) as an additive mask, but "
                'attn_implementation="regard" has boolean masks: load it with '
                'attn_implementation="eager"'
            )

        # 2. Compute with the dense mask.
        result = func(*tree_map(_dense, args), **tree_map(_dense, kwargs or {}))
        is_number = isinstance(result, Tensor) and (
            result.is_floating_point() or result.is_complex()
        )
        if is_number and func.overloadpacket not in _HARMLESS:
            raise ValueError(
                f"the model computes numbers from its mask ({func}), but "
                'attn_implementation="regard" has boolean masks: load it with '
                'attn_implementation="eager"'
            )

        # 3. Guard the masks among its results.
        if writes:
            return args[0]
        if func.overloadpacket in _ZEROS:
            return result
        writable = target is None or target._writable or not _is_view(func)

        def guarded(part: object) -> object:
            if isinstance(part, Tensor) and part.dtype == torch.bool:
                return BooleanMask.of(part, writable=writable)
            return part

        return tree_map(guarded, result)

    def __repr__(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return f"BooleanMask({' × '.join(map(str, self.shape))})"


class PatternMask(BooleanMask):
    """A boolean mask [batch, 1, queries, keys] that holds a pattern instead of values.

    It is materialised as soon as something is computed from it.

    Attributes:
        pattern: the pattern, with keys at 0 … keys − 1.
        first_query: position of the first query.
        first_key: number of earlier keys that the cache has dropped.
    """

    pattern: Pattern
    first_query: int
    first_key: int
    _intersections: dict[Pattern, Pattern]

    @classmethod
    def from_pattern(
        cls,
        pattern: Pattern,
        shape: Sequence[int],
        *,
        first_query: int,
        first_key: int,
        device: torch.device | str,
    ) -> "PatternMask":
        """Make a mask of a shape, [batch, 1, queries, keys]."""
        mask = _new_mask(cls, shape, torch.device(device))
        mask._dense_mask, mask._writable = None, False
        mask.pattern, mask.first_query, mask.first_key = pattern, first_query, first_key
        mask._intersections = {}
        return mask

    def intersect(self, layer_pattern: Pattern) -> Pattern:
        """Return `pattern & layer_pattern`: one object for all layers, which share its layout."""
        return self._intersections.setdefault(layer_pattern, self.pattern & layer_pattern)

    def dense(self) -> Bool[Tensor, "batch 1 queries keys"]:
        """Materialise the mask."""
        batch, _, num_queries, num_keys = self.shape
        queries = torch.arange(num_queries, device="cpu") + self.first_query
        allowed = self.pattern.allows(queries, torch.arange(num_keys, device="cpu")).to(self.device)
        return allowed.expand(batch, num_queries, num_keys)[:, None]

    def __repr__(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return f"PatternMask({self.pattern}, {' × '.join(map(str, self.shape))})"


def _new_mask(cls: type[Any], shape: Sequence[int], device: torch.device) -> Any:
    return Tensor._make_wrapper_subclass(cls, tuple(shape), dtype=torch.bool, device=device)


def _dense(part: object) -> object:
    return part.dense() if isinstance(part, BooleanMask) else part


def _adds_numbers(func: Any, args: Any) -> bool:
    """Return whether a mask is extended by values that may be meant as additive.

    Zeros allow a pair in an additive mask and mask it in a boolean one. Parts made from masks, such
    as `mask.new_ones` (not `mask.new_zeros`), and padding with ones are boolean for sure.
    """
    if func.overloadpacket is _aten.cat:
        return not all(isinstance(part, BooleanMask) for part in args[0])
    if func.overloadpacket is _aten.constant_pad_nd:
        return len(args) < 3 or args[2] != 1
    return False


def _writes(func: Any) -> bool:
    """Return whether a function writes to its first argument."""
    first = func._schema.arguments[:1]
    return bool(first) and first[0].alias_info is not None and first[0].alias_info.is_write


def _is_view(func: Any) -> bool:
    return any(returned.alias_info is not None for returned in func._schema.returns)
