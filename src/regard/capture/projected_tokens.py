"""To which sequence of the batch values belong, told by their numbers.

    value [8, n, d], of 2 sequences × 4 heads:   (batch head) or (head batch)?

The sizes don't tell. But values are made by a linear layer from the tokens of the module's input,
usually without a change, so the numbers of value[i, −1] are among what some layer returned for the
last token of one sequence, and of no other:

    value[0, −1]       .3  −.7  .1  …              row 0 of 8
    a layer returned   … .3  −.7  .1 …             for the last token of sequence 0
                       … .9   .2  .4 …             for that of sequence 1

A few features of each row are looked up, in any order, among those of each sequence's token. It
tells the sequences only if each row is of exactly one. If the last tokens don't tell, as where both
are the same padding, the first ones may. Kept are two tokens for each sequence and layer, as
copies: nothing grows with the length of the text.
"""

from collections import deque
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.internals import in_functorch

_LATEST = 16
"""Number of layers of which tokens are kept: those for queries, keys and values, with adapters."""

_FEATURES = 4
"""Number of features of a row that are compared; each costs rows × batch × features comparisons."""

_MOST = 1 << 15
"""Number of features of a token beyond which it isn't one, but all tokens of a head."""


class ProjectedTokens:
    """The first and the last token of each sequence in what the layers of a module returned."""

    def __init__(self) -> None:
        self._ends: deque[tuple[Tensor, Tensor]] = deque(maxlen=_LATEST)

    def add(self, result: object, inputs: Sequence[Tensor]) -> None:
        """Add what a layer returned.

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
                    self._add_ends(result.view(*size, -1))
        else:
            self._add_ends(result)

    def _add_ends(self, result: Tensor) -> None:
        for axis in range(1, result.dim() - 1):
            self._ends.append(_ends(result, axis))
        if result.dim() == 3:
            self._ends.append(_ends(result, 0))

    def sequences(
        self, values: Float[Tensor, "rows tokens dim"], ends: Sequence[int] = (-1, 0)
    ) -> list[int] | None:
        """Return the number of the sequence of each row; None if the numbers don't tell.

        Args:
            values: values of several sequences and heads, in any order.
            ends: the tokens to compare, in order: −1 is the last, 0 the first.
        """
        if not values.numel() or in_functorch():
            return None
        for token in ends:
            sample = values.detach()[:, token, :_FEATURES]
            if bool((sample == 0.0).all(dim=1).any()):
                # As of padding, which any sequence may have.
                continue
            for first_and_last in reversed(self._ends):
                tokens = first_and_last[token].to(sample.device, sample.dtype)
                if tokens.shape[1] > _MOST:
                    continue
                # [rows, batch, sampled features]: whether the sequence's token has the number.
                same = (tokens[None, :, :, None] == sample[:, None, None]).any(dim=2)
                has_row = same.all(dim=2)
                if bool((has_row.sum(dim=1) == 1).all()):
                    return has_row.byte().argmax(dim=1).tolist()
        return None


def _ends(result: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Return the first and the last token along an axis, [batch, features], as copies."""
    with torch.inference_mode(False):
        first = result.select(axis, 0).flatten(1).clone()
        # Of one text, as if tokens came first, it is all tokens: not copied twice.
        is_one = result.shape[axis] == 1
        return first, first if is_one else result.select(axis, -1).flatten(1).clone()
