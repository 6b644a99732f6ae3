"""The gradient of a target with respect to the output of a call."""

import torch
from jaxtyping import Float
from torch import Tensor

from regard.versions import Overwritten, Versions


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
        """Add what a backward pass has brought."""
        self.total = gradient if self.total is None else self.total + gradient

    def check_value(self) -> None:
        """Raise Overwritten if the model has written over the values since."""
        if self._value_version.modified():
            raise Overwritten(self.overwritten.format(name="value"))

    @property
    def row_totals(self) -> Float[Tensor, "batch heads queries"] | None:
        """g·o of each row; None if it can't be had to the precision of its tensors."""
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
