"""Find the sequence of each row of values, by their numbers.

    value [8, n, d], of 2 sequences × 4 heads:   (batch head) or (head batch)?

Sizes don't tell which. But values are made by a linear layer from the tokens of the module's input,
usually without a change, so the numbers of value[i, −1] are in the result of a layer for the
last token of one sequence, and of no other:

    value[0, −1]       .3  −.7  .1  …              row 0 of 8
    a layer returned   … .3  −.7  .1 …             for the last token of sequence 0
                       … .9   .2  .4 …             for that of sequence 1

A few features of each row are searched, in any order, among those of each sequence's token. The
sequences are known only if each row is of exactly one. If the last tokens are equal, as padding is,
the first ones may differ. Kept are two tokens for each sequence and layer, as copies.

The result of one text may be [1, tokens, features], or [tokens, batch, features] of one token: then
two tokens are all of it. A copy of each result made long prompts 1.05 times as slow. So it is kept
as it is, which takes no more memory than its copy, and copied before a function writes to it:

    result, version ──► a function that writes in place is about to run     copied, as it was
                    └─► written to by something else (the version tells)    refused when asked
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from regard.internals import in_functorch

_LATEST = 8
"""Number of layers of which tokens are kept: those for queries, keys and values, with adapters."""

_FEATURES = 4
"""Number of features of a row that are compared; each costs rows × batch × features comparisons."""

_MOST = 1 << 15
"""Number of features of a token beyond which it isn't one, but all tokens of a head."""

_CHANGED = (
    "the result of a linear layer was modified in place, so the order of sequences is unknown"
)


_Ends = list[tuple[Float[Tensor, "batch features"], Float[Tensor, "batch features"]]]
"""The first and the last token of each sequence, for each axis that may be that of the tokens."""


@dataclass(eq=False)
class _Layer:
    """What is kept of the result of a layer.

    Attributes:
        result: the result as it is; None if its ends were copied.
        version: of the result.
        copies: its ends.
    """

    result: Tensor | None
    version: int = 0
    copies: _Ends = field(default_factory=_Ends)

    @classmethod
    def of(cls, result: Tensor) -> "_Layer":
        # A part must not keep the whole alive, and inference tensors have no version.
        size = result.numel() * result.element_size()
        is_whole = result.untyped_storage().nbytes() <= size and not result.is_inference()
        if is_whole and any(result.shape[axis] <= 2 for axis in _axes(result)):
            return cls(result, result._version)
        layer = cls(result)
        layer.copy()
        return layer

    @property
    def ends(self) -> _Ends:
        """The first and the last tokens, as they were.

        Raises:
            ValueError: the result was written to.
        """
        if self.result is None:
            return self.copies
        if self.result._version != self.version:
            raise ValueError(_CHANGED)
        return _ends(self.result)

    def copy(self) -> None:
        """Keep copies from now on."""
        assert self.result is not None
        with torch.inference_mode(False):
            for first, last in _ends(self.result):
                copied = first.clone()
                self.copies.append((copied, copied if last is first else last.clone()))
        self.result = None


class ProjectedTokens:
    """The first and the last token of each sequence in the results of a module's layers."""

    def __init__(self) -> None:
        self._layers: deque[_Layer] = deque(maxlen=_LATEST)

    def add(self, result: object, inputs: Sequence[Tensor]) -> None:
        """Add the result of a layer.

        Args:
            result: [batch, ..., features], with tokens on any axis between, or [tokens, batch,
                features]; or [batch · tokens, features], if an input of the module has that batch.
            inputs: the inputs of the module.
        """
        if type(result) is not Tensor or not result.is_floating_point() or not result.numel():
            return
        if in_functorch():
            return
        result = result.detach()
        if result.dim() == 2:
            sizes = {x.shape[:2] for x in inputs if x.dim() > 2}
            for size in sizes:
                if size.numel() == len(result):
                    self._layers.append(_Layer.of(result.view(*size, -1)))
        elif result.dim() > 2:
            self._layers.append(_Layer.of(result))

    def before_write(self, tensor: Tensor) -> None:
        """Copy what is kept of a tensor that is about to be written to."""
        for layer in self._layers:
            kept = layer.result
            if kept is None or kept._version != layer.version:
                continue
            if address(kept) == address(tensor):
                layer.copy()

    def sequences(
        self, values: Float[Tensor, "rows tokens dim"], ends: Sequence[int] = (-1, 0)
    ) -> list[int] | None:
        """Return the number of the sequence of each row; None if the numbers don't tell.

        Args:
            values: values of several sequences and heads, in any order.
            ends: the tokens to compare, in order: −1 is the last, 0 the first.

        Raises:
            ValueError: the result of a layer was written to, unseen, so that it may be that of one.
        """
        if not values.numel() or in_functorch():
            return None
        for token in ends:
            sample = values.detach()[:, token, :_FEATURES]
            if bool((sample == 0.0).all(dim=1).any()):
                # As of padding, which any sequence may have.
                continue
            for kept in (ends for layer in reversed(self._layers) for ends in layer.ends):
                tokens = kept[token].to(sample.device, sample.dtype)
                if tokens.shape[1] > _MOST:
                    continue
                # [rows, batch, sampled features]: whether the sequence's token has the number.
                same = (tokens[None, :, :, None] == sample[:, None, None]).any(dim=2)
                has_row = same.all(dim=2)
                if bool((has_row.sum(dim=1) == 1).all()):
                    return has_row.byte().argmax(dim=1).tolist()
        return None


def _axes(result: Tensor) -> list[int]:
    """Return the axes that may be that of the tokens, the first axis first."""
    axes = [*range(result.dim() - 2, 0, -1)]
    return [0, *axes] if result.dim() == 3 else axes


def _ends(result: Tensor) -> _Ends:
    ends: _Ends = []
    for axis in _axes(result):
        first = result.select(axis, 0).flatten(1)
        is_one = result.shape[axis] == 1
        ends.append((first, first if is_one else result.select(axis, -1).flatten(1)))
    return ends


def address(tensor: Tensor) -> int:
    """Return the address of a tensor's memory; 0 if it has none, as in `torch.func`."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0
