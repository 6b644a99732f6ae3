"""Score heads on dependency relations."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from numpy.typing import NDArray

from regard.atlas.probes.probe import between_words, notes_of
from regard.atlas.tally import Tally
from regard.atlas.window import Notes, TokenWindow
from regard.matrix import Between

REACH = 32
"""Largest distance in words that is counted."""

_LEFT_OUT = ("root", "punct")


@dataclass(frozen=True)
class Relations:
    """Whether the word with the largest weight is the governor, or a dependent, of the word.

    After Clark et al. 2019. For each relation and each of its pairs of words, a head is right if,
    of all other words of the sentence, the pair's other word has the largest weight. The first of
    equal weights counts; a weight of 0 never does. Both directions are counted: "governor" from the
    dependent, "dependent" from the governor. Subtypes are merged; root and punctuation are skipped.

    Counts, for each split:

        relations/{relation}/{direction}/hits/{split}      [calls, heads]
        relations/{relation}/{direction}/total/{split}     []
        relations/{relation}/{direction}/offsets/{split}   [65], of targets at −32 … 32 words

    Args:
        causal: whether the model is causal. Then only pairs whose target precedes the query count,
            among the words before the query.
    """

    causal: bool = False

    kind: ClassVar[str] = "sentence"

    def groups(self, windows: Sequence[TokenWindow]) -> Between:
        return between_words(windows, [range(len(window.words)) for window in windows])

    def score(
        self,
        windows: Sequence[TokenWindow],
        found: Float[ndarray, "batch heads from to"],
        call: int,
        tally: Tally,
    ) -> None:
        hits: dict[str, Any] = defaultdict(int)
        for window, weights in zip(windows, found, strict=True):
            size = len(window.words)
            strongest = self._strongest(weights[:, :size, :size])
            for name, edges in self._edges(window):
                right = strongest[:, edges[0]] == edges[1]
                hits[f"relations/{name}/hits/{window.split}"] += right.sum(axis=1)
        for name, values in hits.items():
            tally.add(name, values, call=call)

    def count(self, windows: Sequence[TokenWindow], tally: Tally) -> None:
        totals: Counter[str] = Counter()
        offsets: dict[str, Any] = defaultdict(int)
        for window in windows:
            for name, (queries, targets) in self._edges(window):
                far = targets - queries
                near = far[abs(far) <= REACH] + REACH
                totals[f"relations/{name}/total/{window.split}"] += len(queries)
                counted = np.bincount(near, minlength=2 * REACH + 1)
                offsets[f"relations/{name}/offsets/{window.split}"] += counted
        for name, values in (dict[str, Any](totals) | offsets).items():
            tally.add(name, values)

    def _strongest(
        self, weights: Float[ndarray, "heads words words"]
    ) -> Int[ndarray, "heads words"]:
        """Return the other word with the largest weight for each word; −1 without any."""
        size = weights.shape[1]
        numbers = np.arange(size)
        hidden = numbers >= numbers[:, None] if self.causal else np.eye(size, dtype=bool)
        visible = np.where(hidden, -1.0, weights)
        strongest = visible.argmax(axis=2)
        return np.where(visible.max(axis=2) > 0.0, strongest, -1)

    def _edges(self, window: TokenWindow) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """Yield relations and directions, such as "obj/governor", with queries and targets."""
        pairs: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for dependent, governor, relation in _governed(notes_of(window)):
            pairs[f"{relation}/governor"].append((dependent, governor))
            pairs[f"{relation}/dependent"].append((governor, dependent))
        for name, every in pairs.items():
            seen = [(query, target) for query, target in every if not self.causal or target < query]
            if seen:
                yield name, np.array(seen, dtype=np.int64).T


def _governed(notes: Notes) -> Iterator[tuple[int, int, str]]:
    """Yield dependent, governor and relation of each pair that counts."""
    each = zip(notes.governors, notes.relations, strict=True)
    for dependent, (governor, relation) in enumerate(each):
        plain = relation.split(":")[0]
        if governor >= 0 and plain not in _LEFT_OUT:
            yield dependent, governor, plain
