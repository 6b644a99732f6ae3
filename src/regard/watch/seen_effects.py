"""What the heads of a watched model do to a target."""

from collections.abc import Sequence

from torch import Tensor

from regard.calls.call import AttentionCall
from regard.calls.head_effects import HeadEffects, by_layer, layer_names


class SeenEffects:
    """The effects of all calls of a model that was watched with `effects=True`.

    Args:
        calls: the calls.
    """

    def __init__(self, calls: Sequence[AttentionCall]) -> None:
        self._calls = calls

    def heads(self) -> HeadEffects:
        """Return what each head does to the target, by its gradient: Σ g·o over all tokens.

        It predicts by how much the target falls if the output of a head is set to zero, and is a
        straight line: `regard.effects.verify` holds it against the truth. Calls that the
        target does not depend on have 0; those of one module are added up.

        Raises:
            ValueError: no gradient has come, or a call was not understood.
        """
        gradients = [call.checked_gradient for call in self._calls]
        if all(gradient.total is None for gradient in gradients):
            raise ValueError(
                "no gradient has come: call target.backward() on a number that depends on what "
                "was seen"
            )
        rows: dict[str, Tensor] = {}
        for call, gradient in zip(self._calls, gradients, strict=True):
            if not call.heads_known:
                raise ValueError(f"the heads of {call} are not known: leave it out with where=")
            row = gradient.by_head().cpu()
            rows[call.module] = rows[call.module] + row if call.module in rows else row
        names = layer_names(rows)
        return by_layer({names[module]: row for module, row in rows.items()}, "gradient")
