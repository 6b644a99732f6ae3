"""Scores of passages beside what hiding them really does."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Verification:
    """What the answer loses in log-probability when a passage is hidden, beside its score.

    Attributes:
        passages: the numbers of the passages.
        predicted: their scores.
        true: what the answer loses.
        how: how the scores were computed.
    """

    passages: list[int]
    predicted: Float[Tensor, "passages"]
    true: Float[Tensor, "passages"]
    how: str

    @property
    def rank_correlation(self) -> float:
        """Spearman's rank correlation of both; NaN for fewer than two passages."""
        if len(self.passages) < 2:
            return float("nan")
        ranks = torch.stack([_ranks(self.predicted), _ranks(self.true)])
        return float(torch.corrcoef(ranks)[0, 1])

    def __repr__(self) -> str:
        lines = [f"passage  {'predicted':>10}  {'true':>10}   (log-probability, by {self.how})"]
        rows = zip(self.passages, self.predicted.tolist(), self.true.tolist(), strict=True)
        lines += [f"{number:>7}  {score:>+10.3f}  {loss:>+10.3f}" for number, score, loss in rows]
        return "\n".join([*lines, f"rank correlation {self.rank_correlation:.2f}"])


def _ranks(values: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """Return the rank of each number; equal ones share the mean of theirs."""
    smaller = (values[:, None] > values).sum(dim=1)
    equal = (values[:, None] == values).sum(dim=1)
    return smaller + (equal - 1) / 2
