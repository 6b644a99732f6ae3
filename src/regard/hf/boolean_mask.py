"""Masks that say True where a query may look, and never pass for numbers."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.utils._pytree import tree_map

from regard.patterns import Pattern

_aten = torch.ops.aten
_HARMLESS = {
    # They know what a boolean mask is.
    _aten.masked_fill,
    _aten.masked_fill_,
    _aten.where,
    # They look at its shape only.
    _aten.empty_like,
    _aten.full_like,
    _aten.new_empty,
    _aten.new_full,
    _aten.new_ones,
    _aten.new_zeros,
    _aten.ones_like,
    _aten.zeros_like,
}
"""Functions that return numbers, and take none from a mask."""

_ZEROS = {_aten.new_zeros, _aten.zeros_like}
"""Functions whose result means the same as numbers, but not beside a mask: so it is no mask."""


class BooleanMask(Tensor):
    """A boolean mask that no numbers are computed from.

    A model that computes attention by itself may mean another kind of mask, numbers that are added
    to the scores, of which 0 allows a pair. With this one it would get wrong scores without a word,
    so whatever makes numbers of it raises. What is a mask again, such as a part of it, is guarded
    in the same way.
    """

    _written: Tensor | None
    _writable: bool

    @classmethod
    def of(cls, mask: Bool[Tensor, "..."], *, writable: bool = True) -> "BooleanMask":
        """Guard a mask.

        Args:
            mask: the mask.
            writable: whether it may be written to: not if it is a part of what isn't written down.
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
                f'the model writes to its mask ({func}), of which attn_implementation="regard" '
                'holds no numbers: load it with attn_implementation="sdpa"'
            )
        if _adds_numbers(func, args):
            raise ValueError(
                f"the model puts something beside its mask ({func}) that was made for numbers, 0 "
                'where a query may look, so attn_implementation="regard" is not for it; load it '
                'with attn_implementation="eager"'
            )
        found = func(*tree_map(_dense, args), **tree_map(_dense, kwargs or {}))
        numbers = isinstance(found, Tensor) and (found.is_floating_point() or found.is_complex())
        if numbers and func.overloadpacket not in _HARMLESS:
            raise ValueError(
                f"the model computes numbers from its mask ({func}), which says True where a query "
                'may look: it computes attention by itself, so attn_implementation="regard" is '
                'not for it; load it with attn_implementation="eager"'
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
    """A boolean mask [batch, 1, queries, keys] that holds no number for any pair.

    To whoever asks, it is a tensor of that shape; as soon as something is computed with it, it is
    written down.

    Attributes:
        pattern: who may look at whom, with keys at 0 … keys − 1.
        first_query: where the first query stands among the keys.
        first_key: how many keys there were before the first, which the cache has dropped.
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
        """Return the pattern of who may look both here and in a layer.

        All layers with that pattern get the same object, so that it is laid out once for all.
        """
        return self._joint.setdefault(own, self.pattern & own)

    def dense(self) -> Bool[Tensor, "batch 1 queries keys"]:
        """Write the mask down."""
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
    """Say whether a mask is made longer by what may mean its opposite as a boolean.

    Zeros allow a pair in a mask of numbers, and hide it in a boolean one. Parts that were made from
    masks, as `mask.new_ones` is (not `mask.new_zeros`), and ones behind a mask are surely meant as
    booleans.
    """
    if func.overloadpacket is _aten.cat:
        return not all(isinstance(part, BooleanMask) for part in args[0])
    if func.overloadpacket is _aten.constant_pad_nd:
        return len(args) < 3 or args[2] != 1
    return False


def _writes(func: Any) -> bool:
    """Say whether a function writes to its first argument."""
    first = func._schema.arguments[:1]
    return bool(first) and first[0].alias_info is not None and first[0].alias_info.is_write


def _is_view(func: Any) -> bool:
    return any(returned.alias_info is not None for returned in func._schema.returns)
