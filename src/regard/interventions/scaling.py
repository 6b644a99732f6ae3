"""Heads whose output is multiplied by a number, with respect to which there is a gradient."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.capture.call import Call
from regard.capture.listener import CallSite, Rank
from regard.interventions.intervention import Intervention
from regard.interventions.layers import Layers


class Scaling(Intervention):
    """Multiplies the output of each head by a number, the same for all heads of a layer.

    After `target.backward()`, the gradient of these numbers is g·o of each head, summed over all
    tokens: what the target gains, by a straight line, if the whole output is added.

    Args:
        model: the model.
        factors: the factors of some modules, by path; that of all others is 1.

    Attributes:
        scales: by the path of a module, the factor of each head.
    """

    rank = Rank.ABLATE

    def __init__(self, model: nn.Module, factors: Mapping[str, float] | None = None) -> None:
        super().__init__(model, Layers(model, None, "layers"))
        self._factors = factors or {}
        self.scales: dict[str, Float[Tensor, "heads"]] = {}

    def changed(self, site: CallSite, call: Call) -> Call:
        scales = self._scales(site, call.output)
        return call.with_output(call.returned * scales[:, None, None])

    def _scales(
        self, site: CallSite, output: Float[Tensor, "batch heads queries value_dim"]
    ) -> Float[Tensor, "heads"]:
        """Return the factor of each head of a module; its calls share them."""
        if site.name not in self.scales:
            factor = self._factors.get(site.name, 1.0)
            self.scales[site.name] = torch.full(
                (output.shape[1],),
                factor,
                dtype=output.dtype,
                device=output.device,
                requires_grad=True,
            )
        return self.scales[site.name]
