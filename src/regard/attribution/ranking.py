"""Scores of passages beside measured losses, and the order in which passages are listed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from regard.interventions.verify import correlation, ranks

_FACTOR = 3.0
"""Score and loss disagree if one is more than so many times the other."""

_LEAST = 0.1
"""In nats: where score and loss are both below, a probability changes by less than 10 %."""


@dataclass(frozen=True, eq=False, repr=False)
class HiddenPassages:
    """The losses of the answer's log-probability when passages are hidden, beside their scores.

    Attributes:
        passages: the numbers of the passages.
        predicted: their scores.
        exact: the loss without each of them.
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
        return {row.number: row.disagreement for row in self._rows if row.disagreement}

    @property
    def _rows(self) -> list["PassageRow"]:
        numbers = zip(self.passages, self.predicted.tolist(), self.exact.tolist(), strict=True)
        return [PassageRow(number, score, loss, self.how) for number, score, loss in numbers]

    def __repr__(self) -> str:
        lines = [f"passage  {self.how:>13}  {'exact':>8}"]
        for row in self._rows:
            line = f"{row.number:>7}  {row.score:>+13.3f}  {row.exact:>+8.3f}  {row.disagreement}"
            lines.append(line.rstrip())
        return "\n".join([*lines, f"Spearman {self.spearman:.2f}"])


class PassageRow(NamedTuple):
    """A passage in a table.

    Attributes:
        number: its number.
        score: its score.
        exact: the loss without it; None if it was not hidden.
        how: how the scores of hidden passages were computed; "" if none were hidden.
    """

    number: int
    score: float
    exact: float | None
    how: str

    @property
    def best_known(self) -> float:
        """The loss if the passage was hidden, else its score.

        Mean weights are no losses: it is the score by attention.
        """
        return self.score if self.exact is None or self.how == "attention" else self.exact

    @property
    def disagreement(self) -> str:
        """How the loss differs from the score; "" if it does not."""
        score, loss = self.score, self.exact
        if loss is None or self.how == "attention" or max(abs(score), abs(loss)) < _LEAST:
            return ""
        if score * loss < 0.0:
            return "opposite sign"
        low, high = sorted((abs(score), abs(loss)))
        if high <= _FACTOR * low:
            return ""
        return f"{loss / score:.2g} × the score" if score else "the score is 0"


def passage_rows(
    scores: Float[Tensor, "passages"], checked: HiddenPassages | None
) -> list[PassageRow]:
    """Return a row for each passage, in the order of the prompt."""
    losses: dict[int, float] = {}
    if checked is not None:
        losses = dict(zip(checked.passages, checked.exact.tolist(), strict=True))
    how = "" if checked is None else checked.how
    numbered = enumerate(scores.tolist())
    return [PassageRow(number, score, losses.get(number), how) for number, score in numbered]


def largest_value(rows: Sequence[PassageRow]) -> float:
    """Return the largest value by size, which the bar of a passage is relative to."""
    return max(1e-12, *(abs(row.best_known) for row in rows))


def strongest(rows: Sequence[PassageRow], count: int) -> list[PassageRow]:
    """Return the rows with the largest values of either sign, sorted by value.

    The strongest supporter and the strongest opponent are always among two or more.
    """
    by_value = sorted(rows, key=lambda row: -row.best_known)
    by_size = sorted(rows, key=lambda row: -abs(row.best_known))
    ends = [by_value[0], by_value[-1]] if count > 1 else []
    chosen = list(dict.fromkeys([*ends, *by_size]))[:count]
    return sorted(chosen, key=lambda row: (-row.best_known, row.number))


def left_out(rows: Sequence[PassageRow], shown: Sequence[PassageRow]) -> str:
    """Return the number and the values of the passages that are not shown; "" if all are."""
    values = [row.best_known for row in rows if row not in shown]
    if not values:
        return ""
    if len(values) == 1:
        return f"1 other passage, {values[0]:+.3f}"
    return f"{len(values)} other passages, {min(values):+.3f} to {max(values):+.3f}"
