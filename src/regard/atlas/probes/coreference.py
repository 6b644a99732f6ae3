"""Score heads on coreference."""

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
    """A mention of an entity that was mentioned before.

    Attributes:
        word: its head.
        candidates: the heads of all mentions before it, in order, each once.
        right: whether each is a head of a mention of the same entity.
    """

    word: int
    candidates: list[int]
    right: set[int]


@dataclass(frozen=True)
class Coreference:
    """Whether the earlier mention with the largest weight is one of the same entity.

    After Clark et al. 2019. A mention is represented by its head word. For each mention of an
    entity that was mentioned before in the window, with another word, a head is right if, of the
    head words of all earlier mentions, one of the same entity has the largest weight. The first of
    equal weights counts; a weight of 0 never does.

    Counts, for each split:

        coreference/hits/{split}        [calls, heads]
        coreference/total/{split}       []
        coreference/nearest/{split}     [], hits of the nearest earlier mention
        coreference/same_head/{split}   [], hits of the nearest one with the same head word,
                                        ignoring case, or else of the nearest
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
    """Return the head words of mentions, in order, each once."""
    return sorted({mention.head for mention in notes_of(window).mentions})


def _questions(window: TokenWindow) -> Iterator[_Question]:
    """Yield the mentions of entities that were mentioned before."""
    mentions, heads = notes_of(window).mentions, _heads(window)
    for mention in mentions:
        right = {
            one.head for one in mentions if one.entity == mention.entity and one.head < mention.head
        }
        if right:
            before = [word for word in heads if word < mention.head]
            yield _Question(mention.head, before, right)
