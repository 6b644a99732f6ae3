"""The output of a call: its projection, its gradient, and the effects of heads on a target."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor

from regard.matrix.reduction import Result
from regard.versions import Overwritten, Versions

How = Literal["gradient", "integrated", "exact"]


class OutputProjection:
    """The output projection of a call.

    Args:
        module: path of the linear layer.
        weight: the matrix that multiplies the outputs of all heads, one after the other.
        num_heads: number of heads.
    """

    def __init__(
        self, module: str, weight: Float[Tensor, "heads_and_value_dim model_dim"], num_heads: int
    ) -> None:
        self.module = module
        self._by_head = weight.detach().unflatten(0, (num_heads, -1))
        self._versions = Versions([("weight", weight)])

    @property
    def by_head(self) -> Float[Tensor, "heads value_dim model_dim"]:
        """The part of each head.

        Raises:
            Overwritten: it was modified in place since, as training does.
        """
        if self._versions.modified():
            raise Overwritten(f"the weight of {self.module} was modified in place since")
        return self._by_head


class OutputGradient:
    """The gradient of a target with respect to the output of a call, added up as it comes.

    Several backward passes add up, as in `tensor.grad`: effects are then those of the sum of their
    targets.

    Args:
        value: [batch, key_heads, keys, value_dim].
        output: [batch, heads, queries, value_dim], before the output projection.
        problem: why no gradient can come, if so.
        overwritten: what to say if a tensor was modified in place.

    Attributes:
        total: the gradient; None as long as none has come.
        problem_of_scores: why the gradients of scores don't follow from it, if so.
    """

    def __init__(
        self,
        value: Float[Tensor, "batch key_heads keys value_dim"],
        output: Float[Tensor, "batch heads queries value_dim"],
        problem: str = "",
        overwritten: str = "{name} was modified in place",
    ) -> None:
        self.value, self.problem, self.overwritten = value, problem, overwritten
        self.problem_of_scores = ""
        self.total: Float[Tensor, "batch heads queries value_dim"] | None = None
        self._output = output
        self._value_version = Versions([("value", value)])
        self._output_version = Versions([("output", output)])

    def add(self, gradient: Float[Tensor, "batch heads queries value_dim"]) -> None:
        """Add the gradient of a backward pass."""
        self.total = gradient if self.total is None else self.total + gradient

    def check_value(self) -> None:
        """Raise Overwritten if the model has written over the values since."""
        if self._value_version.modified():
            raise Overwritten(self.overwritten.format(name="value"))

    @property
    def row_totals(self) -> Float[Tensor, "batch heads queries"] | None:
        """g·o of each row; None if its tensors are too imprecise, or the output was modified."""
        if self.total is None or self._output_version.modified():
            return None
        if self._output.dtype not in (torch.float32, torch.float64):
            return None
        return (self.total * self._output).sum(dim=3)

    def by_head(self, batch: int | None = None) -> Float[Tensor, "heads"]:
        """Return g·o of each head, summed over sequences and queries; 0 if no gradient has come.

        Args:
            batch: only this sequence.

        Raises:
            Overwritten: the model has written over the output since.
        """
        dtype = torch.promote_types(self._output.dtype, torch.float32)
        if self.total is None:
            return torch.zeros(self._output.shape[1], dtype=dtype, device=self._output.device)
        if self._output_version.modified():
            raise Overwritten(self.overwritten.format(name="output"))
        products = self.total.to(dtype) * self._output.to(dtype)
        return (products if batch is None else products[batch : batch + 1]).sum(dim=(0, 2, 3))


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
        num_known = int((~sizes.isnan()).sum())
        num_heads = self.effects.shape[1]
        layers = self.labels["layers"]
        return [
            (cast("int | str", layers[index // num_heads]), index % num_heads)
            for index in order[: min(count, num_known)].tolist()
        ]

    def __repr__(self) -> str:
        return f"{super().__repr__()}\n  how      {self.how}"


def by_layer(rows: Mapping[Any, Float[Tensor, "some_heads"]], how: How) -> HeadEffects:
    """Return effects from a row for each layer."""
    num_heads = max((len(row) for row in rows.values()), default=0)
    is_double = any(row.dtype == torch.float64 for row in rows.values())
    dtype = torch.float64 if is_double else torch.float32
    effects = torch.full((len(rows), num_heads), torch.nan, dtype=dtype)
    for index, row in enumerate(rows.values()):
        effects[index, : len(row)] = row
    return HeadEffects({"layers": list(rows), "heads": range(num_heads)}, effects, how)
