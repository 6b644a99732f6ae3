"""`Attribution`: which passages of a prompt an answer used."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attribution.hidden import HiddenPassages
from regard.attribution.passages import Passage

How = Literal["effects", "attention", "leave-one-out"]


@dataclass(frozen=True, eq=False)
class Attribution:
    """How much each passage of a prompt supports an answer.

    Attributes:
        prompt: the prompt; of a conversation, what the chat template made of it.
        answer: the answer.
        answer_tokens: the answer, token by token.
        passages: the passages, in the order of the prompt.
        scores: of each passage for the answer as a whole. By effects and by leaving one out, a
            change of its log-probability in nats: positive supports it. By attention, the mean
            weight over all heads.
        how: how they were computed.
        log_prob: the log-probability of the answer.
        by_head: the same by layer and head, whose sum the scores are; None without heads.
        by_token: the same for each token of the answer; None if that was not asked for.
    """

    prompt: str
    answer: str
    answer_tokens: list[str]
    passages: list[Passage]
    scores: Float[Tensor, "passages"]
    how: How
    log_prob: float
    by_head: Float[Tensor, "layers heads passages"] | None
    by_token: Float[Tensor, "answer passages"] | None
    _hide: Callable[[Sequence[Sequence[int]]], Tensor] = field(repr=False)

    def top(self, count: int = 5) -> list[tuple[Passage, float]]:
        """Return the passages with the largest scores, and these, the largest first."""
        order = self.scores.argsort(descending=True)[:count].tolist()
        return [(self.passages[number], float(self.scores[number])) for number in order]

    def verify(self, count: int = 5, *, seed: int = 0) -> HiddenPassages:
        """Hide passages, and compare what the answer truly loses with the scores.

        Args:
            count: how many of the strongest passages to hide, one at a time, and how many others
                at random.
            seed: random seed.
        """
        order = self.scores.argsort(descending=True).tolist()
        strongest, others = order[:count], order[count:]
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randperm(len(others), generator=generator)[:count].tolist()
        chosen = strongest + sorted(others[number] for number in drawn)
        truth = self._hide([[number] for number in chosen]).sum(dim=1)
        return HiddenPassages(chosen, self.scores[chosen], truth, self.how)

    def table(self, count: int | None = None) -> str:
        """Return the passages as lines of text, the largest score first."""
        largest = max(float(self.scores.abs().max()), 1e-12)
        lines = [
            f"answer: {self.answer.strip()}  (log-probability {self.log_prob:.2f}; by {self.how})"
        ]
        for passage, score in self.top(len(self.passages) if count is None else count):
            bar = "█" * round(12 * abs(score) / largest)
            text = " ".join(passage.text.split())
            lines.append(
                f"{score:+8.3f}  {bar:<12}  {text if len(text) <= 72 else text[:71] + '…'}"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Attribution({len(self.passages)} passages, how={self.how!r})\n{self.table(5)}"
