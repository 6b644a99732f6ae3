"""The strongest look of each head from a token, or at it.

As in `first_pair`, only looks between words count that are not neighbours, and none at the first
token: heads without a task look there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.calls.first_pair import distant_words, informative
from regard.calls.texts import TextPart
from regard.recording import lookup
from regard.recording.all_heads import Steps
from regard.recording.stored import CallArrays
from regard.recording.text import RecordedText

Direction = Literal["from", "at"]


@dataclass(frozen=True)
class CallLooks:
    """The strongest look of each head of a call.

    Attributes:
        call: number of the call.
        tokens: the key that is looked at, or the query that looks, of each head; None if no look
            counts.
        weights: the weight of each.
    """

    call: int
    tokens: list[int | None]
    weights: Float[Tensor, "heads"]


def token_looks(
    calls: Sequence[CallArrays],
    texts: Sequence[RecordedText],
    text: int,
    token: int,
    direction: Direction,
) -> Steps[list[CallLooks]]:
    """Compute the strongest looks, a head at a time; see `Recording.token_looks`."""
    counted: dict[int, Bool[Tensor, "others"]] = {}
    found: list[CallLooks] = []
    for call in calls:
        sides = call.facts.query_text, call.facts.key_text
        chosen, other = sides if direction == "from" else sides[::-1]
        if chosen != text:
            continue
        if other not in counted:
            counted[other] = _counted(texts, text, token, other, direction)
        strongest: list[tuple[int, float]] = []
        for head in range(call.facts.heads):
            weights = _weights(call, head, token, direction)
            strongest.append(_strongest(weights, counted[other]))
            yield
        tokens = [place if weight > 0.0 else None for place, weight in strongest]
        largest = torch.tensor([weight for _, weight in strongest])
        found.append(CallLooks(call.facts.index, tokens, largest))
    return found


def _counted(
    texts: Sequence[RecordedText], text: int, token: int, other: int, direction: Direction
) -> Bool[Tensor, "others"]:
    """Return which tokens of the other text count."""
    chosen, others = (
        TextPart(number, texts[number].name, pieces, list(range(len(pieces))))
        for number in (text, other)
        for pieces in [texts[number].pieces]
    )
    some = torch.tensor([token])
    if direction == "from":
        return informative(chosen, others, some)[0]
    return distant_words(others, chosen, some)[0]


def _weights(
    call: CallArrays, head: int, token: int, direction: Direction
) -> Float[Tensor, "others"]:
    """Return a row of weights, or a column."""
    if direction == "from":
        return lookup.whole_rows(call, head, range(token, token + 1))[0]
    return lookup.whole_column(call, head, token)


def _strongest(
    weights: Float[Tensor, "others"], counted: Bool[Tensor, "others"]
) -> tuple[int, float]:
    """Return the place of the largest weight that counts, and the weight."""
    largest = weights.masked_fill(~counted, 0.0).max(dim=0)
    return int(largest.indices), float(largest.values)
