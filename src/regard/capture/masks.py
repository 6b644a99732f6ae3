"""Convert masks to patterns, or to biases if no pattern fits."""

from collections import deque
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.capture.score_mask import Unknown, masked_by
from regard.capture.spans import Spans
from regard.hf.masks import BooleanMask, PatternMask
from regard.patterns import Pattern, everyone, from_mask
from regard.positions import Bias, from_tensor
from regard.positions.from_tensor import FromTensor

_LATEST = 4
"""Number of cached masks: layers of a model have up to three kinds."""


@dataclass(frozen=True, eq=False)
class Meaning:
    """The meaning of a mask.

    Attributes:
        pattern: its pattern.
        bias: what it adds to scores, if it is more than a pattern.
        first_query: the position of the first query in both.
        mask_known: whether the pattern has all pairs that it masks for all heads; if not, the bias
            may mask some.
    """

    pattern: Pattern
    bias: Bias | None
    first_query: int
    mask_known: bool = True


@dataclass(frozen=True)
class Sizes:
    """The sizes of a call."""

    batch: int
    heads: int
    queries: int
    keys: int

    @property
    def behind(self) -> int:
        """The position of the first query if the last one is at the last key."""
        return self.keys - self.queries


class Masks:
    """Converts masks, and caches the latest, which all layers of a model share.

    Equal masks without a pattern are kept once.
    """

    def __init__(self) -> None:
        self._latest: deque[_Read] = deque(maxlen=_LATEST)
        self._kept: deque[tuple[Tensor, Meaning]] = deque(maxlen=_LATEST)

    def read(self, mask: Tensor | None, sizes: Sizes, *, cross: bool) -> Meaning:
        """Convert a mask.

        Args:
            mask: boolean, where True means may attend, or added to the scores. Its shape
                broadcasts to [batch, heads, queries, keys]; further keys are ignored.
            sizes: the sizes of the call.
            cross: whether it is cross-attention.
        """
        if mask is None or 0 in (sizes.batch, sizes.queries, sizes.keys):
            return Meaning(everyone(), None, sizes.behind)
        if isinstance(mask, PatternMask):
            return Meaning(mask.pattern, None, mask.first_query)
        mask = mask.dense() if isinstance(mask, BooleanMask) else mask
        mask = mask.detach()[(None,) * (4 - mask.dim())][..., : sizes.keys]
        mask = _without_copies(mask)
        for known in self._latest:
            if (known.sizes, known.cross) == (sizes, cross) and known.is_equal(mask):
                return known.meaning
        meaning = self._understood(mask, sizes, cross=cross)
        self._latest.append(_Read(mask, sizes, cross, meaning))
        return meaning

    def forget(self) -> None:
        """Clear the cache."""
        self._latest.clear()

    def _understood(self, mask: Tensor, sizes: Sizes, *, cross: bool) -> Meaning:
        if mask.shape[1] > 1 and torch.equal(mask, mask[:, :1].expand_as(mask)):
            mask = mask[:, :1]
        is_boolean = mask.dtype == torch.bool
        try:
            masked = ~mask if is_boolean else masked_by(mask, mask.shape[-1])
        except Unknown:
            return replace(self._once(mask, sizes), mask_known=False)
        if masked is None:
            adds = bool(mask.any())
            return self._once(mask, sizes) if adds else Meaning(everyone(), None, sizes.behind)
        adds = not is_boolean and bool((mask.masked_fill(masked, 0.0) != 0.0).any())

        # 1. A pattern is the same for all heads.
        if masked.shape[1] > 1 and torch.equal(masked, masked[:, :1].expand_as(masked)):
            masked = masked[:, :1]
        placed: Meaning | None = None
        if masked.shape[1] == 1:
            placed = self._of_pairs(~masked[:, 0], sizes, cross=cross)
            if not adds:
                return placed

        # 2. The rest is a bias.
        start = mask if adds else torch.zeros_like(mask, dtype=torch.float32)
        meaning = self._once(start.masked_fill(masked, -torch.inf), sizes)
        if placed is None:
            return meaning
        assert isinstance(meaning.bias, FromTensor)
        bias = replace(meaning.bias, first_query=placed.first_query)
        return Meaning(placed.pattern, bias, placed.first_query)

    def _of_pairs(
        self, allowed: Bool[Tensor, "batch queries keys"], sizes: Sizes, *, cross: bool
    ) -> Meaning:
        """Return the meaning of allowed pairs."""
        spans = Spans.of(allowed.expand(-1, -1, sizes.keys))
        if spans is not None:
            rows = (spans.first.expand(-1, sizes.queries), spans.last.expand(-1, sizes.queries))
            placed = Spans(*rows, sizes.keys).named(sizes.batch, cross=cross)
            if placed is not None:
                return Meaning(placed.pattern, None, placed.first_query)
        return self._once(allowed, sizes)

    def _once(self, mask: Tensor, sizes: Sizes) -> Meaning:
        """Return the meaning of a kept mask, one for all equal ones."""
        shape = (*mask.shape[:-2], sizes.queries, sizes.keys)
        for kept, meaning in self._kept:
            same = (kept.dtype, kept.device, kept.shape) == (mask.dtype, mask.device, shape)
            if same and torch.equal(kept, mask.expand(shape)):
                return meaning
        with torch.inference_mode(False):
            # A copy: the model may overwrite its mask.
            mask = mask.clone().expand(shape)
        if mask.dtype == torch.bool:
            meaning = Meaning(from_mask(mask if len(mask) > 1 else mask[0]), None, sizes.behind)
        else:
            bias = from_tensor(mask, first_query=sizes.behind)
            meaning = Meaning(everyone(), bias, sizes.behind)
        self._kept.append((mask, meaning))
        return meaning


class _Read:
    """A mask and its meaning."""

    def __init__(self, mask: Tensor, sizes: Sizes, cross: bool, meaning: Meaning) -> None:
        self.sizes, self.cross, self.meaning = sizes, cross, meaning
        # Inference tensors have no version counter: compare their content.
        self._mask = mask.clone() if mask.is_inference() else mask
        self._version = None if mask.is_inference() else mask._version

    def is_equal(self, mask: Tensor) -> bool:
        """Return whether a mask is the same, unmodified."""
        mine = self._mask
        if (mine.shape, mine.dtype, mine.device) != (mask.shape, mask.dtype, mask.device):
            return False
        if mask.is_inference():
            return torch.equal(mine, mask)
        same = (mine.data_ptr(), mine.stride()) == (mask.data_ptr(), mask.stride())
        return same and mask._version == mine._version == self._version


def _without_copies(mask: Tensor) -> Tensor:
    """Return a mask with size 1 along expanded axes."""
    for axis, step in enumerate(mask.stride()):
        if step == 0 and mask.shape[axis] > 1:
            mask = mask.narrow(axis, 0, 1)
    return mask
