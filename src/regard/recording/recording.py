"""`Recording`: a watched run on disk."""

from collections.abc import Mapping, Sequence
from typing import Literal, overload

import numpy as np
from numpy.typing import NDArray

from regard.calls.call import AttentionCall
from regard.recording import all_heads, looks, lookup, tiles
from regard.recording.arrays import StoredArray
from regard.recording.layout import EFFECT, HOW
from regard.recording.schema import Facts, Section
from regard.recording.stored import CallArrays
from regard.recording.text import RecordedText

Head = int | Literal["mean"]
Pooling = Literal["mean", "max", "effect"]


class Recording(Sequence[AttentionCall]):
    """A watched run on disk; made by `regard.save`, opened by `regard.open`.

    It is a sequence of calls: `recording[5].matrix` is an AttentionMatrix, and figures and pages
    take its calls like those of `regard.watch`. Only the chunks that a tile, row or column needs
    are read.

    Args:
        name: its name.
        facts: its metadata.
        stored: its calls.
        texts: its texts.
        every: the maps of the mean over all heads, by name; may be empty.
    """

    def __init__(
        self,
        name: str,
        facts: Facts,
        stored: Sequence[CallArrays],
        texts: Sequence[RecordedText],
        every: Mapping[str, StoredArray],
    ) -> None:
        self.name, self.about = name, facts
        self.stored, self.texts, self._every = list(stored), tuple(texts), every

    def __len__(self) -> int:
        return len(self.stored)

    @overload
    def __getitem__(self, which: int) -> AttentionCall: ...
    @overload
    def __getitem__(self, which: slice) -> list[AttentionCall]: ...
    def __getitem__(self, which: int | slice) -> AttentionCall | list[AttentionCall]:
        """Return a call, or a slice of them."""
        if isinstance(which, int):
            return self.arrays_of(which).call
        return [stored.call for stored in self.stored[which]]

    def arrays_of(self, number: int) -> CallArrays:
        """Return the stored arrays of a call."""
        if not -len(self) <= number < len(self):
            raise IndexError(f"there are {len(self)} calls, counted from 0, got number {number}")
        return self.stored[number]

    @property
    def digest(self) -> str:
        """The content address: different recordings have different digests."""
        return self.about.digest

    @property
    def title(self) -> str:
        """The title."""
        return self.about.title

    @property
    def sections(self) -> list[Section]:
        """The titled sections of the texts."""
        return self.about.sections

    @property
    def tokens(self) -> list[str]:
        """The tokens of the text, or of the decoder of an encoder–decoder."""
        return self.texts[-1].tokens

    @property
    def full_zoom(self) -> int:
        """The zoom level at which a cell is one pair, for the largest call."""
        return max((call.facts.max_zoom for call in self.stored), default=0)

    def max_zoom(self, call: int | Literal["all"]) -> int:
        """Return the deepest zoom level of a call, or of the mean over all."""
        if call == "all":
            self._check_all()
            return self.full_zoom
        return self.arrays_of(call).facts.max_zoom

    def measures(self, call: int) -> dict[str, list[float | None]]:
        """Return each measure for each head, by name; None if it is undefined."""
        return self.arrays_of(call).facts.measures

    @property
    def target(self) -> str | None:
        """The name of the number that effects are effects on; None if none are stored."""
        return self.about.target

    @property
    def has_effects(self) -> bool:
        """Whether all calls have effects."""
        return self.target is not None and all(call.facts.effects for call in self.stored)

    @property
    def has_all(self) -> bool:
        """Whether there are maps of the mean over all heads of all calls."""
        return bool(self._every)

    def tile(
        self,
        call: int | Literal["all"],
        head: Head,
        level: int,
        x: int,
        y: int,
        pool: Pooling = "mean",
    ) -> NDArray[np.float32]:
        """Return a tile of the map of a head.

        At level z, a cell is b × b pairs with b = 2^(max_zoom − z), and the tile has the keys from
        256·b·x on and the queries from 256·b·y on. At the deepest level a cell is one weight.

        Args:
            call: the number of a call, or "all" for the mean over all heads of all calls.
            head: the number of a head, or "mean": the mean of the pooled maps of the call's heads.
                It must be "mean" if call is "all".
            level: 0 to `max_zoom(call)`.
            x: index of the tile along the keys.
            y: index of the tile along the queries.
            pool: the mean or the largest weight of a cell; or "effect", its largest effect by
                absolute value, with its sign.

        Returns:
            [256, 256], [queries, keys]; NaN where all pairs are masked, or outside of the matrix.

        Raises:
            IndexError: there is no such call, head or tile, or there are no effects.
            ValueError: `pool` is invalid, or `head` is a number and `call` is "all".
            RecordingError: a chunk is damaged.
        """
        if call == "all":
            _check_mean(head)
            return all_heads.finished(self.tile_of_all(level, x, y, pool))
        _check_pool(pool)
        return tiles.tile(self.arrays_of(call), head, level, x, y, pool)

    def tile_of_all(
        self, level: int, x: int, y: int, pool: Pooling = "mean"
    ) -> all_heads.Steps[NDArray[np.float32]]:
        """Compute a tile of the mean over all heads, a call at a time; see `tile`."""
        _check_pool(pool)
        self._check_all()
        if pool == EFFECT and not self.has_effects:
            raise IndexError("not all calls have effects")
        tiles.check_place(self.full_zoom, level, x, y)
        cell = 2 ** (self.full_zoom - level)
        if cell in self.about.all_cells and cell > 1:
            return tiles.stored(self._every[f"{pool}/{cell}"], None, self.stored, cell, x, y)
        return (yield from all_heads.tile(self.stored, level, x, y, pool))

    def line(
        self,
        call: int,
        head: Head,
        name: Literal["received", "entropy"],
        level: int,
        x: int,
        pool: Pooling = "mean",
    ) -> NDArray[np.float32]:
        """Return 256 cells of the weight received by keys, or of the entropy of queries.

        Args:
            call: the number of a call.
            head: the number of a head, or "mean".
            name: "received", the mean weight of a key over the queries that may attend to it; or
                "entropy" of a query, in nats.
            level: as for `tile`.
            x: index of the 256 cells.
            pool: pooling per cell.
        """
        return tiles.line(self.arrays_of(call), head, name, level, x, pool)

    def thumbs(self, call: int) -> NDArray[np.float32]:
        """Return a small map of each head of a call, [heads, up to 32, up to 32]."""
        return tiles.thumbs(self.arrays_of(call))

    def top_keys(
        self, call: int | Literal["all"], head: Head, rows: range, count: int
    ) -> lookup.Strongest:
        """Return the strongest keys of some rows, the strongest first; arguments as for `tile`.

        Returns:
            The keys [rows, count], their weights, and the summed weight of all others [rows].
        """
        if call == "all":
            _check_mean(head)
            return all_heads.finished(self.top_keys_of_all(rows, count))
        return lookup.top_keys(self.arrays_of(call), head, rows, count)

    def top_keys_of_all(self, rows: range, count: int) -> all_heads.Steps[lookup.Strongest]:
        """Compute the strongest keys in the mean over all heads, a call at a time."""
        self._check_all()
        return (yield from all_heads.top_keys(self.stored, rows, count))

    def top_queries(
        self, call: int, head: Head, key: int, count: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], float]:
        """Return the strongest queries of a key, their weights, and the sum of the column."""
        return lookup.top_queries(self.arrays_of(call), head, key, count)

    def token_looks(
        self, text: int, token: int, direction: looks.Direction
    ) -> all_heads.Steps[list[looks.CallLooks]]:
        """Compute the strongest look of each head from a token, or at it, a head at a time.

        Only looks between words count that are not neighbours, and none at the first token.

        Args:
            text: the number of the text of the token: only calls whose queries ("from") or keys
                ("at") are this text are searched.
            token: the index of the token.
            direction: "from" for the strongest key of the token, "at" for its strongest query.

        Raises:
            IndexError: there is no such text or token.
        """
        size = self._text(text).facts.tokens
        if not 0 <= token < size:
            raise IndexError(f"text {text} has tokens 0 to {size - 1}, got {token}")
        found = looks.token_looks(self.stored, self.texts, text, token, direction)
        return (yield from found)

    def weight(self, call: int, head: int, query: int, key: int) -> tuple[float, float]:
        """Return a weight, and its score before the softmax."""
        return lookup.weight(self.arrays_of(call), head, query, key)

    def edges(
        self, call: int, head: Head, queries: range, keys: range, count: int
    ) -> tuple[list[tuple[int, int, float]], float]:
        """Return the strongest pairs of a rectangle, and the summed weight of the others.

        Raises:
            ValueError: the rectangle has more than 16 million pairs.
        """
        return lookup.edges(self.arrays_of(call), head, queries, keys, count)

    def search(
        self, text: str, number: int = 0, start: int = 0, count: int = 100
    ) -> tuple[list[tuple[int, int]], bool]:
        """Find a string in a text, ignoring case.

        Args:
            text: the string.
            number: the number of the text.
            start: the first token to search.
            count: maximum number of matches.

        Returns:
            The first and the last token of each match, and whether there are more.
        """
        return self._text(number).search(text, start, count)

    def _text(self, number: int) -> RecordedText:
        if not 0 <= number < len(self.texts):
            texts = len(self.texts)
            raise IndexError(f"there are {texts} texts, counted from 0, got number {number}")
        return self.texts[number]

    def _check_all(self) -> None:
        if not self._every:
            raise IndexError('call "all" needs several calls of one size')

    def __repr__(self) -> str:
        tokens = " and ".join(f"{text.facts.tokens:,}" for text in self.texts)
        heads = sum(call.facts.heads for call in self.stored)
        model = f", {self.about.model}" if self.about.model else ""
        effects = f", effects on {self.target}" if self.target else ""
        return (
            f"Recording({self.name!r}{model}: {tokens} tokens, {len(self)} calls, {heads} heads, "
            f"{self.about.dtype}, weights within {self.about.error:.1e}{effects})"
        )


def _check_pool(pool: str) -> None:
    if pool not in HOW:
        raise ValueError(f"pool must be 'mean', 'max' or 'effect', got {pool!r}")


def _check_mean(head: Head) -> None:
    if head != "mean":
        raise ValueError(f"head must be 'mean' if call is 'all', got {head!r}")
