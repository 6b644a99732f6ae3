"""Which heads find who was named before."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from regard.atlas.probes.probe import between_words, notes_of
from regard.atlas.tally import Tally
from regard.atlas.window import TokenWindow
from regard.matrix import Between


class _Question(NamedTuple):
    """A mention of what was mentioned before.

    Attributes:
        word: its head.
        candidates: the heads of all mentions before it, in order, each once.
        right: which of these are heads of mentions of the same.
    """

    word: int
    candidates: list[int]
    right: set[int]


@dataclass(frozen=True)
class Coreference:
    """Whether the earlier mention that a head looks at most is one of the same person or thing.

    After Clark et al. 2019. Mentions stand for themselves by their head words. For each mention of
    what was mentioned before in the window, with another word, the head is right if, of the head
    words of all mentions before, it gives most to one of those of the same entity; the first one
    of equals; never one that it gives nothing to.

    What is counted, for each split:

        coreference/hits/{split}        [calls, heads]
        coreference/total/{split}       []
        coreference/nearest/{split}     [], if one always took the nearest mention before
        coreference/same_head/{split}   [], if one took the nearest with the same head word, in
                                        capitals or not, or else the nearest
    """

    kind: ClassVar[str] = "mentions"

    def groups(self, windows: Sequence[TokenWindow]) -> Between:
        return between_words(windows, [_heads(window) for window in windows])

    def score(
        self,
        windows: Sequence[TokenWindow],
        found: Float[ndarray, "batch heads from to"],
        call: int,
        tally: Tally,
    ) -> None:
        hits: dict[str, Any] = defaultdict(int)
        for window, weights in zip(windows, found, strict=True):
            place = {word: number for number, word in enumerate(_heads(window))}
            for word, candidates, right in _questions(window):
                given = weights[:, place[word], [place[one] for one in candidates]]
                correct = np.array([one in right for one in candidates])
                hit = correct[given.argmax(axis=1)] & (given.max(axis=1) > 0.0)
                hits[f"coreference/hits/{window.split}"] += hit.astype(np.int64)
        for name, values in hits.items():
            tally.add(name, values, call=call)

    def count(self, windows: Sequence[TokenWindow], tally: Tally) -> None:
        counts: Counter[str] = Counter()
        for window in windows:
            forms = [form.casefold() for form in notes_of(window).forms]
            for word, candidates, right in _questions(window):
                nearest = candidates[-1]
                alike = [one for one in candidates if forms[one] == forms[word]]
                counts[f"coreference/total/{window.split}"] += 1
                counts[f"coreference/nearest/{window.split}"] += nearest in right
                counts[f"coreference/same_head/{window.split}"] += [nearest, *alike][-1] in right
        for name, values in counts.items():
            tally.add(name, values)


def _heads(window: TokenWindow) -> list[int]:
    """Return the words that stand for mentions, in order, each once."""
    return sorted({mention.head for mention in notes_of(window).mentions})


def _questions(window: TokenWindow) -> Iterator[_Question]:
    """Yield the mentions of what was mentioned before."""
    mentions, heads = notes_of(window).mentions, _heads(window)
    for mention in mentions:
        right = {
            one.head for one in mentions if one.entity == mention.entity and one.head < mention.head
        }
        if right:
            before = [word for word in heads if word < mention.head]
            yield _Question(mention.head, before, right)
