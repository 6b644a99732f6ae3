"""Files that only a server has: computed for one pair, token or rectangle.

They are `File`s as in `file_layout`, and not in a published folder.
"""

from dataclasses import dataclass
from math import isfinite
from statistics import fmean
from typing import ClassVar

import numpy as np

from regard.recording import Recording
from regard.recording.all_heads import Steps, finished
from regard.recording.looks import Direction
from regard.server.file_layout import JSON
from regard.server.models import (
    Column,
    EdgeList,
    HeadLooks,
    Matches,
    Media,
    TokenLooks,
    Weight,
)
from regard.server.packing import shortest
from regard.server.tile_ids import HeadName

NUM_COLUMN_QUERIES = 64
"""Maximum listed queries of a column."""


@dataclass(frozen=True)
class ColumnFile:
    """The strongest queries of a key."""

    media_type: ClassVar[Media] = JSON
    of: HeadName
    key: int

    @property
    def path(self) -> str:
        return f"columns/{self.of}/{self.key}.json"

    def body(self, recording: Recording) -> bytes:
        """Return a `Column`."""
        num_queries = recording.arrays_of(self.of.call).facts.queries
        queries, weights, total = recording.top_queries(
            self.of.call, self.of.head, self.key, min(NUM_COLUMN_QUERIES, num_queries)
        )
        return Column(
            queries=queries[weights > 0].tolist(),
            weights=shortest(weights[weights > 0]),
            sum=float(total),
            count=num_queries,
        ).to_bytes()


@dataclass(frozen=True)
class TokenLooksFile:
    """The strongest look of each head from a token, or at it."""

    media_type: ClassVar[Media] = JSON
    direction: Direction
    text: int
    token: int

    @property
    def path(self) -> str:
        return f"looks/{self.direction}/{self.text}/{self.token}.json"

    def body(self, recording: Recording) -> bytes:
        """Return `TokenLooks`."""
        return finished(self.steps(recording))

    def steps(self, recording: Recording) -> Steps[bytes]:
        """Compute the same."""
        found = yield from recording.token_looks(self.text, self.token, self.direction)
        calls = [
            HeadLooks(call=one.call, tokens=one.tokens, weights=shortest(one.weights.numpy()))
            for one in found
        ]
        return TokenLooks(calls=calls).to_bytes()


@dataclass(frozen=True)
class WeightFile:
    """The weight of one pair, and its score before the softmax."""

    media_type: ClassVar[Media] = JSON
    of: HeadName
    query: int
    key: int

    @property
    def path(self) -> str:
        return f"weight/{self.of}/{self.query}/{self.key}.json"

    def body(self, recording: Recording) -> bytes:
        """Return a `Weight`; the score of a mean of heads is null."""
        call, head = self.of.call, self.of.head
        if head != "mean":
            weight, score = recording.weight(call, head, self.query, self.key)
            return Weight(weight=weight, score=score if isfinite(score) else None).to_bytes()
        heads = range(recording.arrays_of(call).facts.heads)
        mean = fmean(recording.weight(call, one, self.query, self.key)[0] for one in heads)
        return Weight(weight=mean, score=None).to_bytes()


@dataclass(frozen=True)
class EdgesFile:
    """The strongest pairs of a rectangle of the map."""

    media_type: ClassVar[Media] = JSON
    of: HeadName
    queries: range
    keys: range
    count: int

    @property
    def path(self) -> str:
        rectangle = f"y0={self.queries.start}&y1={self.queries.stop}"
        rectangle += f"&x0={self.keys.start}&x1={self.keys.stop}"
        return f"edges/{self.of}.json?{rectangle}&count={self.count}"

    def body(self, recording: Recording) -> bytes:
        """Return `EdgeList`."""
        edges, rest = recording.edges(
            self.of.call, self.of.head, self.queries, self.keys, self.count
        )
        weights = shortest(np.array([weight for *_, weight in edges], np.float32))
        pairs = [
            (query, key, weight) for (query, key, _), weight in zip(edges, weights, strict=True)
        ]
        return EdgeList(edges=pairs, rest=rest).to_bytes()


@dataclass(frozen=True)
class SearchFile:
    """The matches of a search in a text."""

    media_type: ClassVar[Media] = JSON
    words: str
    text: int
    start: int
    count: int

    @property
    def path(self) -> str:
        return f"search.json?T={self.text}&from={self.start}&count={self.count}&text={self.words}"

    def body(self, recording: Recording) -> bytes:
        """Return `Matches`."""
        found, more = recording.search(self.words, self.text, self.start, self.count)
        return Matches(matches=found, more=more).to_bytes()
