"""Scores of passages beside what hiding them really does."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from regard.interventions.verify import correlation, ranks

_FACTOR = 3.0
"""Score and loss disagree if one is more than so many times the other."""

_LEAST = 0.1
"""In nats: where score and loss are both below, a probability changes by less than 10 %."""


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

    @property
    def disagreements(self) -> dict[int, str]:
        """How the loss differs from the score, by passage, where signs or sizes disagree.

        Sizes disagree by a factor of 3; numbers below 0.1 nats are not compared. Weights of
        attention predict no loss, so they have no disagreements.
        """
        if self.how == "attention":
            return {}
        rows = zip(self.passages, self.predicted.tolist(), self.exact.tolist(), strict=True)
        said = ((number, _disagreement(score, loss)) for number, score, loss in rows)
        return {number: words for number, words in said if words}

    def __repr__(self) -> str:
        said = self.disagreements
        lines = [f"passage  {self.how:>13}  {'exact':>8}"]
        for number, score, loss in zip(
            self.passages, self.predicted.tolist(), self.exact.tolist(), strict=True
        ):
            line = f"{number:>7}  {score:>+13.3f}  {loss:>+8.3f}  {said.get(number, '')}"
            lines.append(line.rstrip())
        return "\n".join([*lines, f"Spearman {self.spearman:.2f}"])


def _disagreement(score: float, loss: float) -> str:
    """Say how a loss differs from its score; "" if it does not."""
    if max(abs(score), abs(loss)) < _LEAST:
        return ""
    if score * loss < 0.0:
        return "opposite sign"
    low, high = sorted((abs(score), abs(loss)))
    if high <= _FACTOR * low:
        return ""
    return f"{loss / score:.2g} × the score" if score else "the score is 0"
