"""Heads whose output is multiplied by a number, with respect to which there is a gradient."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.capture.product import Product
from regard.capture.raw_call import Rank, RawCall
from regard.capture.reading import Reading
from regard.interventions.alteration import Alteration, CallSite
from regard.interventions.layers import Layers


class Scaling(Alteration):
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

    def altered(self, site: CallSite, call: RawCall) -> RawCall:
        scales = self._scales(site, call.output, call.output.shape[1])
        return replace(call, instead=call.returned * scales[:, None, None])

    def altered_product(
        self, site: CallSite, product: Product, reading: Reading, num_heads: int | None
    ) -> Tensor:
        where, result = self.output_places(site, product, num_heads), product.result
        assert result is not None
        scales = self._scales(site, result, where.shape[1])
        heads = torch.arange(where.shape[1], device=result.device)[:, None, None].expand_as(where)
        of_place = torch.empty(result.numel(), dtype=torch.long, device=result.device)
        of_place[where.flatten()] = heads.flatten()
        return result * scales[of_place].view(result.shape)

    def _scales(self, site: CallSite, like: Tensor, num_heads: int) -> Float[Tensor, "heads"]:
        """Return the factor of each head of a module; its calls share them."""
        if site.name not in self.scales:
            factor = self._factors.get(site.name, 1.0)
            self.scales[site.name] = torch.full(
                (num_heads,), factor, dtype=like.dtype, device=like.device, requires_grad=True
            )
        return self.scales[site.name]
