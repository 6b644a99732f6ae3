"""The protocol of probes."""

from collections.abc import Sequence
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from numpy import ndarray

from regard.atlas.tally import Tally
from regard.atlas.window import Notes, TokenWindow
from regard.matrix import Between


@runtime_checkable
class Probe(Protocol):
    """Scores heads on annotated words.

    The model runs on a batch of windows under `watch(model, keep=[probe.groups(windows)])`, and the
    result of each call is passed to `score`.
    """

    kind: ClassVar[str]
    """The kind of its windows."""

    def groups(self, windows: Sequence[TokenWindow]) -> Between:
        """Return the reduction for a batch of windows of one length."""
        ...

    def score(
        self,
        windows: Sequence[TokenWindow],
        found: Float[ndarray, "batch heads from to"],
        call: int,
        tally: Tally,
    ) -> None:
        """Add the scores of the heads of a call to a tally.

        Args:
            windows: the batch.
            found: the result of `groups`.
            call: the number of the call.
            tally: the tally.
        """
        ...

    def count(self, windows: Sequence[TokenWindow], tally: Tally) -> None:
        """Add the totals to a tally, once for each window."""
        ...


def notes_of(window: TokenWindow) -> Notes:
    """Return the annotations of a window.

    Raises:
        ValueError: there are none.
    """
    if window.notes is None:
        raise ValueError(
            f"a probed window must have notes, got {window.name!r} without: use annotated text"
        )
    return window.notes


def between_words(windows: Sequence[TokenWindow], words: Sequence[Sequence[int]]) -> Between:
    """Return attention from word to word, after Clark et al. 2019.

    It is the mean over the tokens of the query word, and the sum over those of the key word.

    Args:
        windows: a batch of windows of one length.
        words: the indices of the words of each window; shorter lists are padded with empty groups.
    """
    tokens = len(windows[0].ids)
    members = torch.zeros(len(windows), max(map(len, words)), tokens, dtype=torch.float64)
    for groups, window, chosen in zip(members, windows, words, strict=True):
        for group, word in zip(groups, chosen, strict=False):
            first, end = window.words[word]
            group[first:end] = 1.0
    means = members / members.sum(dim=2, keepdim=True).clamp_min(1.0)
    return Between(means, members)
