"""`Attribution`: which passages of a prompt an answer used."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from regard.attribution.page import page_of
from regard.attribution.passages import Passage
from regard.attribution.ranking import (
    HiddenPassages,
    largest_value,
    left_out,
    passage_rows,
    strongest,
)
from regard.attribution.scoring import HeadLooks
from regard.errors import check_positive
from regard.interventions.verify import strongest_and_others
from regard.views.numbers import bar
from regard.views.page import Page

How = Literal["effects", "attention", "leave-one-out"]

_SURE = math.log(0.7)
"""Above this log-probability of a token, effects are far below the losses of hiding a passage."""

_PRINTED = 20
"""Number of passages that are printed; `table` has all."""

_WIDTH = 72
"""Number of characters of a passage that are printed."""


@dataclass(frozen=True, eq=False)
class Attribution:
    """How much each passage of a prompt supports an answer.

    Attributes:
        prompt: the prompt; of a conversation, the text of its chat template.
        prompt_tokens: the prompt, token by token.
        answer: the answer.
        answer_tokens: the answer, token by token.
        passages: the passages, in the order of the prompt.
        scores: of each passage for the answer as a whole. By effects and by leaving one out, a
            change of its log-probability in nats: positive supports it. By attention, the mean
            weight over all heads.
        how: how they were computed.
        log_prob: the log-probability of the answer.
        by_head: the same by layer and head, whose sum the scores are; None without heads.
        by_token: the same for each token of the answer; None unless `each_token`.
        looks: by effects, the strongest heads of each passage by key and by query, the strongest
            first.
        checkpointed: whether some layers were computed again in the backward pass, because
            activations would have taken more than 2 GiB.
        bypassed: whether tokens reach later ones past attention too, as in state-space layers;
            then a hidden passage is hidden from attention alone. None if that can't be told.
    """

    prompt: str
    prompt_tokens: list[str]
    answer: str
    answer_tokens: list[str]
    passages: list[Passage]
    scores: Float[Tensor, "passages"]
    how: How
    log_prob: float
    by_head: Float[Tensor, "layers heads passages"] | None
    by_token: Float[Tensor, "answer passages"] | None
    looks: list[list[HeadLooks]] | None
    checkpointed: bool
    bypassed: bool | None
    _hide: Callable[[Sequence[Sequence[range]]], tuple[Tensor, Tensor]] = field(repr=False)

    def top(self, count: int = 5) -> list[tuple[Passage, float]]:
        """Return the passages with the largest scores, the largest first, with their scores.

        Raises:
            ValueError: count is below 1.
        """
        check_positive(count=count)
        order = self.scores.argsort(descending=True)[:count].tolist()
        return [(self.passages[number], float(self.scores[number])) for number in order]

    def verify(self, count: int = 5, *, seed: int = 0) -> HiddenPassages:
        """Hide passages, one at a time, and compare the true losses of the answer with the scores.

        Args:
            count: number of the strongest passages to hide, and of others at random.
            seed: random seed.

        Raises:
            ValueError: count is below 1.
        """
        ranked = self.scores.argsort(descending=True).tolist()
        chosen = strongest_and_others(ranked, count, seed)
        losses, _ = self._hide([[self.passages[number].tokens] for number in chosen])
        return HiddenPassages(chosen, self.scores[chosen], losses.sum(dim=1), self.how)

    def page(
        self, *, title: str = "", about: str = "", checked: HiddenPassages | None = None
    ) -> Page:
        """Make a page of the prompt, shaded by scores, and of the strongest heads of each passage.

        Args:
            title: its title; "Which passages did the answer use?" by default.
            about: a line below the title, such as the name of the model.
            checked: the result of `verify`, to be shown beside the scores.
        """
        return page_of(self, title=title, about=about, checked=checked)

    def save(
        self,
        path: str | PathLike[str],
        *,
        title: str = "",
        about: str = "",
        checked: HiddenPassages | None = None,
    ) -> Path:
        """Write the page to a file, with the arguments of `page`; return its path."""
        return self.page(title=title, about=about, checked=checked).save(path)

    @property
    def notes(self) -> list[str]:
        """Sentences on the limits of these scores, if any."""
        notes = {
            "Tokens reach the answer past attention too, as in state-space layers: scores, and "
            "what hiding a passage does, are of attention alone.": self.bypassed,
            "Whether tokens reach the answer past attention too can't be told.": (
                self.bypassed is None
            ),
            "Activations did not fit in 2 GiB: some layers were computed again in the backward "
            "pass.": self.checkpointed,
            "The model is nearly sure of this answer, where effects understate what passages do: "
            "verify hides them.": (
                self.how == "effects" and self.log_prob > _SURE * len(self.answer_tokens)
            ),
        }
        return [note for note, applies in notes.items() if applies]

    def table(self, count: int | None = None, *, checked: HiddenPassages | None = None) -> str:
        """Return the passages as lines of text, those that support the answer most first.

        Args:
            count: number of passages, the strongest of either sign; all by default. The last line
                counts the others.
            checked: the result of `verify`: its passages are ranked by the true losses of the
                answer, and marked if these disagree with the scores.

        Raises:
            ValueError: count is below 1.
        """
        check_positive(count=1 if count is None else count)
        rows = passage_rows(self.scores, checked)
        shown = strongest(rows, len(rows) if count is None else count)
        largest = largest_value(rows)
        lines = [
            f"answer: {self.answer.strip()}  (log-probability {self.log_prob:.2f}; by {self.how})"
        ]
        lines += self.notes
        if checked is not None:
            lines.append(f"{'score':>8}  {'exact':>8}")

        for row in shown:
            text = " ".join(self.passages[row.number].text.split())
            text = text if len(text) <= _WIDTH else f"{text[: _WIDTH - 2].rstrip()} …"
            numbers = f"{row.score:+8.3f}"
            if checked is not None:
                loss = "" if row.exact is None else f"{row.exact:+8.3f}"
                numbers += f"  {loss:>8}  {row.disagreement:<15}"
            lines.append(f"{numbers}  {bar(abs(row.best_known) / largest):<10}  {text}")
        others = left_out(rows, shown)
        return "\n".join([*lines, others] if others else lines)

    def __repr__(self) -> str:
        return (
            f"Attribution({len(self.passages)} passages, how={self.how!r})\n{self.table(_PRINTED)}"
        )
