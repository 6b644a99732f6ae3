"""Compare predicted effects of heads with those of ablation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.calls.outputs import HeadEffects, How
from regard.errors import check_positive
from regard.interventions.heads import Run, heads
from regard.interventions.layers import Layer

T = TypeVar("T")


@dataclass(frozen=True, eq=False, repr=False)
class Verification:
    """Predicted effects of some heads beside those of ablation; prints as a table.

    Attributes:
        heads: the layer and head of each: the strongest ones, then others at random.
        predicted: the predicted effects.
        exact: the effects of ablation.
        how: how they were predicted.
    """

    heads: list[tuple[Layer, int]]
    predicted: Float[Tensor, "heads"]
    exact: Float[Tensor, "heads"]
    how: How

    @property
    def pearson(self) -> float:
        """The correlation of the two."""
        return correlation(self.predicted, self.exact)

    @property
    def spearman(self) -> float:
        """The correlation of their ranks."""
        return correlation(ranks(self.predicted), ranks(self.exact))

    def __repr__(self) -> str:
        rows = [("layer", "head", self.how, "exact")]
        for (layer, head), predicted, exact in zip(
            self.heads, self.predicted.tolist(), self.exact.tolist(), strict=True
        ):
            rows.append((str(layer), str(head), f"{predicted:.4g}", f"{exact:.4g}"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in rows
        ]
        return "\n".join([*lines, f"Pearson {self.pearson:.2f}, Spearman {self.spearman:.2f}"])


def verify(
    model: nn.Module,
    run: Run,
    predicted: HeadEffects,
    count: int = 10,
    *,
    seed: int = 0,
    progress: bool | None = None,
) -> Verification:
    """Ablate the heads of the largest predicted effects, and as many at random, and compare.

    Args:
        model: the model.
        run: runs the model, and returns the target, as for `heads`.
        predicted: the predicted effects, by `heads` or by `seen.effects.heads()`.
        count: the number of strongest heads to ablate, and of others at random.
        seed: random seed.
        progress: whether to show a progress bar, as for `heads`.

    Raises:
        ValueError: count is below 1, or the predicted heads are not those of the model.
    """
    chosen = strongest_and_others(predicted.strongest(predicted.effects.numel()), count, seed)
    exact = heads(model, run, how="exact", only=chosen, progress=progress)
    return Verification(chosen, _of(predicted, chosen), _of(exact, chosen), predicted.how)


def strongest_and_others(ranked: Sequence[T], count: int, seed: int) -> list[T]:
    """Return the first entries of a ranking, and as many of the others at random.

    Raises:
        ValueError: count is below 1.
    """
    check_positive(count=count)
    others = ranked[count:]
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randperm(len(others), generator=generator)[:count].tolist()
    return [*ranked[:count], *(others[index] for index in drawn)]


def _of(effects: HeadEffects, chosen: list[tuple[Layer, int]]) -> Float[Tensor, "heads"]:
    rows = {layer: row for row, layer in enumerate(effects.labels["layers"])}
    return torch.stack([effects.effects[rows[layer], head] for layer, head in chosen]).double()


def correlation(first: Float[Tensor, "numbers"], second: Float[Tensor, "numbers"]) -> float:
    """Return Pearson's correlation; NaN if one of the two does not vary."""
    first, second = first.double() - first.double().mean(), second.double() - second.double().mean()
    return float(first @ second / (first.norm() * second.norm()))


def ranks(values: Float[Tensor, "numbers"]) -> Float[Tensor, "numbers"]:
    """Return the rank of each number; equal ones get the mean of their ranks.

    >>> import torch
    >>> ranks(torch.tensor([3.0, 1.0, 3.0, 2.0]))
    tensor([2.5000, 0.0000, 2.5000, 1.0000])
    """
    values = values.double()
    below = (values[:, None] > values).sum(dim=1)
    equal = (values[:, None] == values).sum(dim=1)
    return below + (equal - 1) / 2.0
