"""Effects of the heads of a watched model on a target."""

from collections.abc import Sequence

from torch import Tensor

from regard.calls.call import AttentionCall, layer_names
from regard.calls.outputs import HeadEffects, by_layer


class SeenEffects:
    """The effects of all calls of a model, watched with `effects=True`.

    Args:
        calls: the calls.
    """

    def __init__(self, calls: Sequence[AttentionCall]) -> None:
        self._calls = calls

    def heads(self) -> HeadEffects:
        """Return the effect of each head on the target: Σ gradient · output over all tokens.

        A linear prediction of how much the target falls if a head's output is set to zero;
        `regard.interventions.verify` compares it with the true change. Calls without influence on
        the target have 0; calls of one module are added.

        Raises:
            ValueError: there are no gradients, or a call was not understood.
        """
        gradients = [call.checked_gradient for call in self._calls]
        if all(gradient.total is None for gradient in gradients):
            raise ValueError(
                "there are no gradients: call target.backward() on a number that depends on the "
                "watched calls"
            )
        rows: dict[str, Tensor] = {}
        for call, gradient in zip(self._calls, gradients, strict=True):
            if not call.heads_known:
                raise ValueError(f"the heads of {call} are unknown: exclude it with where=")
            row = gradient.by_head().cpu()
            rows[call.module] = rows[call.module] + row if call.module in rows else row
        names = layer_names(rows)
        return by_layer({names[module]: row for module, row in rows.items()}, "gradient")
