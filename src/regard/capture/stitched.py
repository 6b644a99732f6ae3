"""Join the calls of a generated text to one per module."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from regard.calls.call import AttentionCall
from regard.calls.check import Check, worst
from regard.capture.captured import FirstKeys, looks_back, num_used_keys
from regard.capture.spans import Placed, Spans
from regard.matrix.scores import Scores
from regard.matrix.view import View
from regard.patterns import from_mask
from regard.positions import Bias, from_tensor
from regard.positions.from_tensor import FromTensor

_CHUNK = 1 << 22
"""Pairs of a pattern per chunk."""


def stitched(calls: Sequence[AttentionCall]) -> list[AttentionCall]:
    """Join calls of one module if each extends the keys of the one before.

    Returns:
        A call for each module and text, in order.

    Raises:
        ValueError: a call can't be joined to the one before it.
    """
    chains: list[_Chain] = []
    latest: dict[str, _Chain] = {}
    texts: list[list[_Chain]] = [[]]
    for call in calls:
        chain = latest.get(call.module)
        if chain is not None and not chain.continues(call):
            # A new text begins, also for the other modules.
            latest.clear()
            texts.append([])
            chain = None
        if chain is None:
            chain = latest[call.module] = _Chain(call)
            chains.append(chain)
            texts[-1].append(chain)
        else:
            chain.add(call)
    for text in texts:
        _check_cross(text)
    known: dict[tuple[object, ...], Spans] = {}
    return [chain.joined(index, known) for index, chain in enumerate(chains)]


def _check_cross(text: Sequence["_Chain"]) -> None:
    """Raise ValueError if calls of cross-attention may be of different texts.

    All have the same keys, in any text and beam. Only self-attention with as many calls and queries
    shows that they are of one text.
    """
    steps = [chain.num_queries for chain in text if chain.first.kind == "self"]
    for chain in text:
        if len(chain.parts) > 1 and chain.first.kind == "cross" and chain.num_queries not in steps:
            raise ValueError(
                f"{chain.first} and {len(chain.parts) - 1} other calls of cross-attention may be "
                "of different texts: watch the self-attention of that decoder too"
            )


@dataclass(eq=False)
class _Chain:
    """Consecutive calls of a module.

    Attributes:
        first: the first call.
        parts: all calls, with the number of keys that were dropped before each.
        new_keys: the new keys of each call.
        num_keys: total number of keys.
    """

    first: AttentionCall
    parts: list[tuple[Scores, int]] = field(init=False)
    checks: list[Check] = field(init=False)
    new_keys: list[Float[Tensor, "batch key_heads keys key_dim"]] = field(init=False)
    num_keys: int = field(init=False)

    def __post_init__(self) -> None:
        source = _scores_of(self.first)
        self.parts, self.checks = [(source, 0)], [self.first.check]
        self.num_keys = num_used_keys(source)
        self.new_keys = [source.whole_key[:, :, : self.num_keys]]

    @property
    def num_queries(self) -> list[int]:
        """Number of queries of each call."""
        return [source.shape[2] for source, _ in self.parts]

    def continues(self, call: AttentionCall) -> bool:
        """Return whether a call continues the text; if not, it begins a new one.

        Raises:
            ValueError: it does neither.
        """
        source, before = _scores_of(call), self.parts[-1][0]
        used = num_used_keys(source)
        new = 0 if call.kind == "cross" else call.queries
        dropped = self.num_keys + new - used
        # If all keys were dropped, it is a new text.
        if source.shape[:2] == before.shape[:2] and 0 <= dropped < self.num_keys:
            if not dropped and _share_keys(source, before):
                return True
            if torch.equal(
                self._latest(self.num_keys - dropped), source.whole_key[:, :, : used - new]
            ):
                return True
        if used == call.queries or call.kind == "cross":
            return False
        raise ValueError(
            f"{call} has {used - call.queries} earlier keys that differ from those of the call "
            "before: the cache was reordered, as by beam search, or cut"
        )

    def _latest(self, count: int) -> Float[Tensor, "batch key_heads keys key_dim"]:
        """Return the last keys."""
        parts: list[Tensor] = []
        missing = count
        for keys in reversed(self.new_keys):
            parts.append(keys)
            missing -= keys.shape[2]
            if missing <= 0:
                break
        return torch.cat(parts[::-1], dim=2)[:, :, -count:]

    def add(self, call: AttentionCall) -> None:
        """Add a call that continues the text."""
        source = _scores_of(call)
        used, new = num_used_keys(source), 0 if call.kind == "cross" else call.queries
        self.num_keys += new
        self.parts.append((source, self.num_keys - used))
        self.checks.append(call.check)
        self.new_keys.append(source.whole_key[:, :, used - new : used])

    def joined(self, index: int, known: dict[tuple[object, ...], Spans]) -> AttentionCall:
        """Return the joined call."""
        if len(self.parts) == 1:
            return replace(self.first, index=index)
        source = self.parts[0][0]
        query = torch.cat([one.whole_query for one, _ in self.parts], dim=2)
        key = torch.cat(self.new_keys, dim=2)
        pattern, first_query = self._pattern(known)
        call = replace(
            source.call,
            query=query,
            key=key,
            value=None,
            pattern=pattern,
            bias=self._bias(first_query, query.shape[2]),
            positions=range(first_query, first_query + query.shape[2]),
            lse=None,
        )
        whole = replace(source, call=call)
        return replace(
            self.first,
            index=index,
            queries=query.shape[2],
            keys=self.num_keys,
            check=worst(self.checks),
            pattern=pattern,
            view=replace(View.whole(whole), first_head=self.first.first_head),
            gradient=None,
        )

    def _pattern(self, known: dict[tuple[object, ...], Spans]) -> Placed:
        """Return the pattern of the whole text."""
        batch, call = self.first.batch, self.parts[0][0].call
        first_query = self.num_keys - sum(self.num_queries)
        alike = looks_back(call.pattern) and all(
            one.call.pattern == call.pattern and not dropped for one, dropped in self.parts
        )
        if alike and call.first_position == first_query and self.first.kind == "self":
            return Placed(call.pattern, first_query)
        rows: list[tuple[Tensor, Tensor]] = []
        for one, dropped in self.parts:
            spans = _spans(one, known)
            if spans is None:
                raise ValueError(
                    f"can't join calls of {self.first.module}: their pattern, {one.call.pattern}, "
                    "has gaps and differs between calls"
                )
            empty = spans.first > spans.last
            first = (spans.first + dropped).masked_fill(empty, self.num_keys)
            rows.append((first, (spans.last + dropped).masked_fill(empty, -1)))
        first, last = (
            torch.cat([part.expand(batch, -1) for part in parts], dim=1)
            for parts in zip(*rows, strict=True)
        )
        placed = Spans(first, last, self.num_keys).named(batch, cross=self.first.kind == "cross")
        if placed is not None:
            return placed
        keys = torch.arange(self.num_keys, device="cpu")
        mask = (keys >= first[..., None]) & (keys <= last[..., None])
        return Placed(from_mask(mask), first_query)

    def _bias(self, first_query: int, num_queries: int) -> Bias | None:
        """Return the bias of the whole text."""
        biases = [one.call.bias for one, _ in self.parts]
        if all(bias == biases[0] for bias in biases):
            return biases[0]
        numbers = [bias.values for bias in biases if isinstance(bias, FromTensor)]
        if len(numbers) < len(biases):
            raise ValueError(f"can't join calls of {self.first.module}: their score biases differ")
        batch, heads = (max(x.shape[axis] for x in numbers) for axis in (0, 1))
        whole = numbers[0].new_zeros(batch, heads, num_queries, self.num_keys)
        row = 0
        for values, (_, dropped) in zip(numbers, self.parts, strict=True):
            stop = row + values.shape[2]
            width = min(values.shape[3], self.num_keys - dropped)
            whole[:, :, row:stop, dropped : dropped + width] = values[..., :width]
            row = stop
        return from_tensor(whole, first_query=first_query)


def _scores_of(call: AttentionCall) -> Scores:
    if isinstance(call.source, Scores):
        return call.scores
    raise ValueError(f"can't join {call}: its queries and keys were not kept")


def _share_keys(one: Scores, other: Scores) -> bool:
    mine, theirs = one.call.key, other.call.key
    if isinstance(mine, FirstKeys) and isinstance(theirs, FirstKeys):
        return mine.shared is theirs.shared
    return False


def _spans(source: Scores, known: dict[tuple[object, ...], Spans]) -> Spans | None:
    """Return the spans of a call; cached for all layers."""
    _, _, num_queries, num_keys = source.shape
    positions = source.positions(range(num_queries))
    which = (source.call.pattern, tuple(positions.tolist()), num_keys)
    if which not in known:
        keys, pattern = range(num_keys), source.call.pattern
        parts: list[Spans] = []
        for some in positions.split(max(1, _CHUNK // max(1, num_keys))):
            mask = pattern.allows(some, keys)
            spans = Spans.of(mask if mask.dim() == 3 else mask[None])
            if spans is None:
                return None
            parts.append(spans)
        first, last = (
            torch.cat([getattr(part, name) for part in parts], dim=1) for name in ("first", "last")
        )
        known[which] = Spans(first, last, num_keys)
    return known[which]
