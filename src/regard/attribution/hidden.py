"""Scores of passages beside what hiding them really does."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from regard.effects.verify import correlation, ranks


@dataclass(frozen=True, eq=False, repr=False)
class HiddenPassages:
    """What the answer loses in log-probability when a passage is hidden, beside its score.

    Attributes:
        passages: the numbers of the passages.
        predicted: their scores.
        exact: what the answer loses.
        how: how the scores were computed.
    """

    passages: list[int]
    predicted: Float[Tensor, "passages"]
    exact: Float[Tensor, "passages"]
    how: str

    @property
    def spearman(self) -> float:
        """The rank correlation of both; NaN if one of them does not vary."""
        return correlation(ranks(self.predicted), ranks(self.exact))

    def __repr__(self) -> str:
        lines = [f"passage  {self.how:>13}  {'exact':>8}"]
        rows = zip(self.passages, self.predicted.tolist(), self.exact.tolist(), strict=True)
        lines += [f"{number:>7}  {score:>+13.3f}  {loss:>+8.3f}" for number, score, loss in rows]
        return "\n".join([*lines, f"Spearman {self.spearman:.2f}"])
