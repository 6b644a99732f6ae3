"""What a probe is: a question about annotated words, asked of every head."""

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
    """A question about annotated words whose answer a head may know.

    The model runs on a batch of windows under `watch(model, keep=[probe.groups(windows)])`, and
    what was found in each of its calls of attention is handed to `score`.
    """

    kind: ClassVar[str]
    """Of the windows that it looks at."""

    def groups(self, windows: Sequence[TokenWindow]) -> Between:
        """Return what must be known of a batch of windows with equally many tokens."""
        ...

    def score(
        self,
        windows: Sequence[TokenWindow],
        found: Float[ndarray, "batch heads from to"],
        call: int,
        tally: Tally,
    ) -> None:
        """Add to a tally what the heads of a call knew.

        Args:
            windows: the batch.
            found: the sums that `groups` asked for.
            call: the number of the call of attention.
            tally: what to add to.
        """
        ...

    def count(self, windows: Sequence[TokenWindow], tally: Tally) -> None:
        """Add to a tally what does not depend on the model: once for each window."""
        ...


def notes_of(window: TokenWindow) -> Notes:
    """Return what was noted of a window.

    Raises:
        ValueError: nothing was.
    """
    if window.notes is None:
        raise ValueError(
            f"a window that is probed must have notes, got {window.name!r} without: "
            "make it of annotated text"
        )
    return window.notes


def between_words(windows: Sequence[TokenWindow], words: Sequence[Sequence[int]]) -> Between:
    """Return attention from word to word, after Clark et al. 2019.

    It is the mean over the tokens of the word that looks, and the sum over those of the word that
    is looked at.

    Args:
        windows: a batch of windows with equally many tokens.
        words: the numbers of the words of each window that are of interest. Where a window has
            fewer than another, groups without members follow.
    """
    tokens = len(windows[0].ids)
    members = torch.zeros(len(windows), max(map(len, words)), tokens, dtype=torch.float64)
    for groups, window, chosen in zip(members, windows, words, strict=True):
        for group, word in zip(groups, chosen, strict=False):
            first, end = window.words[word]
            group[first:end] = 1.0
    means = members / members.sum(dim=2, keepdim=True).clamp_min(1.0)
    return Between(means, members)
