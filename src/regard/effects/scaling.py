"""Heads whose output is multiplied by a number, with respect to which there is a gradient."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.effects.alteration import Alteration, CallSite
from regard.effects.layers import Layers
from regard.watch.product import Product
from regard.watch.raw_call import Rank, RawCall
from regard.watch.reading import Reading, read_axes


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
        result, read = product.result, product.read
        assert result is not None
        assert read is not None
        # The same is read from the numbers of the places, to learn where in the result it stands.
        numbers = torch.arange(result.numel(), dtype=torch.float64, device=result.device)
        numbered = read(numbers.view(result.shape))
        assert numbered is not None
        numbered = replace(product, output=numbered.output)
        where = read_axes(numbered, self.running, num_heads).output
        if product.again or not torch.equal(where.flatten().sort().values, numbers):
            self.refuse(site, "more is done to its output than to multiply weights with values")
        scales = self._scales(site, result, where.shape[1])
        heads = torch.arange(where.shape[1], device=result.device)[:, None, None].expand_as(where)
        of_place = torch.empty_like(numbers, dtype=torch.long)
        of_place[where.long().flatten()] = heads.flatten()
        return result * scales[of_place].view(result.shape)

    def _scales(self, site: CallSite, like: Tensor, num_heads: int) -> Float[Tensor, "heads"]:
        """Return the factor of each head of a module; its calls share them."""
        if site.name not in self.scales:
            factor = self._factors.get(site.name, 1.0)
            self.scales[site.name] = torch.full(
                (num_heads,), factor, dtype=like.dtype, device=like.device, requires_grad=True
            )
        return self.scales[site.name]
