"""What each head of a model does to a target."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor

from regard.calls.call import layer_in
from regard.matrix.reduction import Result

How = Literal["gradient", "integrated", "exact"]


@dataclass(frozen=True, eq=False, repr=False)
class HeadEffects(Result):
    """What each head does to a target: by how much its output, set to zero, would lower it.

    Positive supports the target. Layers are called by their numbers, or by the paths of their
    modules where numbers don't tell them apart.

    Attributes:
        effects: by layer and head; NaN where a layer has fewer heads, or a head was not asked for.
        how: "gradient" is a straight line, the sum of g·o; "integrated" the same in runs
            with scaled outputs; "exact" is what ablation gave.
    """

    effects: Float[Tensor, "layers heads"]
    how: How

    def strongest(self, count: int) -> list[tuple[int | str, int]]:
        """Return the layer and head of the largest effects by size, the largest first."""
        sizes = self.effects.abs().flatten()
        order = sizes.nan_to_num(nan=-1.0).sort(descending=True, stable=True).indices
        known = int((~sizes.isnan()).sum())
        num_heads = self.effects.shape[1]
        layers = self.labels["layers"]
        return [
            (cast("int | str", layers[place // num_heads]), place % num_heads)
            for place in order[: min(count, known)].tolist()
        ]

    def __repr__(self) -> str:
        return f"{super().__repr__()}\n  how      {self.how}"


def by_layer(rows: Mapping[Any, Float[Tensor, "some_heads"]], how: How) -> HeadEffects:
    """Return effects from a row for each layer."""
    most = max((len(row) for row in rows.values()), default=0)
    wide = any(row.dtype == torch.float64 for row in rows.values())
    dtype = torch.float64 if wide else torch.float32
    effects = torch.full((len(rows), most), torch.nan, dtype=dtype)
    for place, row in enumerate(rows.values()):
        effects[place, : len(row)] = row
    return HeadEffects({"layers": list(rows), "heads": range(most)}, effects, how)


def layer_names(modules: Iterable[str]) -> dict[str, int] | dict[str, str]:
    """Return what each module is called: by the number of its layer, if that tells all apart."""
    layers = {module: layer_in(module) for module in modules}
    if "" in layers.values() or len(set(layers.values())) < len(layers):
        return {module: module for module in layers}
    return {module: int(layer) for module, layer in layers.items()}
