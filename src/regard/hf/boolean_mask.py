"""Boolean masks that raise if numbers are computed from them."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.internals import tree_map
from regard.patterns import Pattern

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

    _written: Tensor | None
    _writable: bool

    @classmethod
    def of(cls, mask: Bool[Tensor, "..."], *, writable: bool = True) -> "BooleanMask":
        """Guard a mask.

        Args:
            mask: the mask.
            writable: whether it may be written to: not if it is a view of a `PatternMask`.
        """
        made = _made(cls, mask.shape, mask.device)
        made._written, made._writable = mask, writable
        return made

    def dense(self) -> Bool[Tensor, "..."]:
        """Return the mask as a tensor."""
        assert self._written is not None
        return self._written

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        target = args[0] if args and isinstance(args[0], BooleanMask) else None
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
        found = func(*tree_map(_dense, args), **tree_map(_dense, kwargs or {}))
        numbers = isinstance(found, Tensor) and (found.is_floating_point() or found.is_complex())
        if numbers and func.overloadpacket not in _HARMLESS:
            raise ValueError(
                f"the model computes numbers from its mask ({func}), but "
                'attn_implementation="regard" has boolean masks: load it with '
                'attn_implementation="eager"'
            )
        if writes:
            return args[0]
        if func.overloadpacket in _ZEROS:
            return found
        writable = target is None or target._writable or not _is_view(func)

        def guarded(part: object) -> object:
            if isinstance(part, Tensor) and part.dtype == torch.bool:
                return BooleanMask.of(part, writable=writable)
            return part

        return tree_map(guarded, found)

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
    _joint: dict[Pattern, Pattern]

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
        made = _made(cls, shape, torch.device(device))
        made._written, made._writable = None, False
        made.pattern, made.first_query, made.first_key = pattern, first_query, first_key
        made._joint = {}
        return made

    def narrowed(self, own: Pattern) -> Pattern:
        """Return `pattern & own`: the same object for all layers, so that they share its layout."""
        return self._joint.setdefault(own, self.pattern & own)

    def dense(self) -> Bool[Tensor, "batch 1 queries keys"]:
        """Materialise the mask."""
        batch, _, num_queries, num_keys = self.shape
        queries = torch.arange(num_queries, device="cpu") + self.first_query
        allowed = self.pattern.allows(queries, torch.arange(num_keys, device="cpu")).to(self.device)
        return allowed.expand(batch, num_queries, num_keys)[:, None]

    def __repr__(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return f"PatternMask({self.pattern}, {' × '.join(map(str, self.shape))})"


def _made(cls: type[Any], shape: Sequence[int], device: torch.device) -> Any:
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
