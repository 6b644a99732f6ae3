"""Join the calls of a generated text to one per module.

With a cache, a module is called once for the prompt and once for each new token:

    call 0    queries 0 1 2    keys 0 1 2
    call 1    query   3        keys 0 1 2 3
    call 2    query   4        keys   1 2 3 4        key 0 was dropped, as by a rolling cache

Joined, the queries are 0 to 4, and so are the keys: those of the first call and the new keys of
each later one. That is exact only if the earlier keys of a call equal those of the calls before:

1. A call continues a chain if its keys, but the new ones, equal the last keys of the chain; keys in
   one shared buffer that only grows need no comparison.
2. A call without earlier keys begins a new text, for all modules.
3. Other keys mean a cache that was reordered or cut: refused. Calls of cross-attention all have the
   same keys, so they are joined only beside self-attention of as many calls and queries.

The pattern of the whole is the common one if all calls have the same, without dropped keys; else
the spans of all rows, shifted by the dropped keys, are converted like those of a mask (`masks`).
Memory: the queries and keys once, and one call's comparison; no n × n numbers but those of a bias.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from regard.calls.call import AttentionCall
from regard.calls.check import Check, worst
from regard.capture.captured import FirstKeys, looks_back, num_used_keys
from regard.capture.masks import ParsedMask, Spans
from regard.matrix.scores import Scores
from regard.matrix.view import View
from regard.patterns import from_mask
from regard.positions import Bias, from_tensor
from regard.positions.from_tensor import FromTensor

_CHUNK = 1 << 22
"""Pairs of a pattern whose spans are found at once: a mask of 4 MB."""


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
        if chain is not None and chain.continues(call):
            chain.add(call)
            continue
        if chain is not None:
            # A new text begins, also for the other modules.
            latest.clear()
            texts.append([])
        latest[call.module] = _Chain(call)
        chains.append(latest[call.module])
        texts[-1].append(latest[call.module])

    for text in texts:
        _check_cross(text)
    cache: dict[tuple[object, ...], Spans] = {}
    return [chain.joined(index, cache) for index, chain in enumerate(chains)]


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
        self.num_keys = num_used_keys(source.call)
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
        used = num_used_keys(source.call)
        new = 0 if call.kind == "cross" else call.queries
        dropped = self.num_keys + new - used
        # If all keys were dropped, it is a new text.
        if source.shape[:2] == before.shape[:2] and 0 <= dropped < self.num_keys:
            if not dropped and _share_keys(source, before):
                return True
            earlier = source.whole_key[:, :, : used - new]
            if torch.equal(self._latest(self.num_keys - dropped), earlier):
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
        used, new = num_used_keys(source.call), 0 if call.kind == "cross" else call.queries
        self.num_keys += new
        self.parts.append((source, self.num_keys - used))
        self.checks.append(call.check)
        self.new_keys.append(source.whole_key[:, :, used - new : used])

    def joined(self, index: int, cache: dict[tuple[object, ...], Spans]) -> AttentionCall:
        """Return the joined call.

        Args:
            index: its number.
            cache: the spans of patterns, shared by all layers.
        """
        if len(self.parts) == 1:
            return replace(self.first, index=index)
        first_source = self.parts[0][0]
        num_queries = sum(self.num_queries)
        mask = self._mask(cache)

        attention = replace(
            first_source.call,
            query=torch.cat([source.whole_query for source, _ in self.parts], dim=2),
            key=torch.cat(self.new_keys, dim=2),
            value=None,
            pattern=mask.pattern,
            bias=self._bias(mask.first_query, num_queries),
            positions=range(mask.first_query, mask.first_query + num_queries),
            lse=None,
        )
        whole = replace(first_source, call=attention)
        return replace(
            self.first,
            index=index,
            queries=num_queries,
            keys=self.num_keys,
            check=worst(self.checks),
            pattern=mask.pattern,
            view=replace(View.whole(whole), first_head=self.first.first_head),
            gradient=None,
        )

    def _mask(self, cache: dict[tuple[object, ...], Spans]) -> ParsedMask:
        """Return the pattern of the whole text."""
        batch, call = self.first.batch, self.parts[0][0].call
        first_query = self.num_keys - sum(self.num_queries)
        same = looks_back(call.pattern) and all(
            source.call.pattern == call.pattern and not dropped for source, dropped in self.parts
        )
        if same and call.first_position == first_query and self.first.kind == "self":
            return ParsedMask(call.pattern, first_query)

        # The spans of all rows, in the keys of the whole text.
        rows: list[tuple[Tensor, Tensor]] = []
        for source, dropped in self.parts:
            spans = _spans(source, cache)
            if spans is None:
                raise ValueError(
                    f"can't join calls of {self.first.module}: their pattern, "
                    f"{source.call.pattern}, has gaps and differs between calls"
                )
            empty = spans.first > spans.last
            first = (spans.first + dropped).masked_fill(empty, self.num_keys)
            rows.append((first, (spans.last + dropped).masked_fill(empty, -1)))
        first, last = (
            torch.cat([part.expand(batch, -1) for part in parts], dim=1)
            for parts in zip(*rows, strict=True)
        )

        # Their pattern; a mask if there is none.
        spans = Spans(first, last, self.num_keys)
        parsed = spans.to_pattern(batch, cross=self.first.kind == "cross")
        if parsed is not None:
            return parsed
        keys = torch.arange(self.num_keys, device="cpu")
        mask = (keys >= first[..., None]) & (keys <= last[..., None])
        return ParsedMask(from_mask(mask), first_query)

    def _bias(self, first_query: int, num_queries: int) -> Bias | None:
        """Return the bias of the whole text."""
        biases = [source.call.bias for source, _ in self.parts]
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


def _share_keys(first: Scores, second: Scores) -> bool:
    """Return whether the keys of two calls are the first ones of one buffer."""
    key, other = first.call.key, second.call.key
    if isinstance(key, FirstKeys) and isinstance(other, FirstKeys):
        return key.shared is other.shared
    return False


def _spans(source: Scores, cache: dict[tuple[object, ...], Spans]) -> Spans | None:
    """Return the spans of a call; cached for all layers. None if a row has gaps."""
    _, _, num_queries, num_keys = source.shape
    positions = source.positions(range(num_queries))
    entry = (source.call.pattern, tuple(positions.tolist()), num_keys)
    if entry not in cache:
        keys, pattern = range(num_keys), source.call.pattern
        parts: list[Spans] = []
        for chunk in positions.split(max(1, _CHUNK // max(1, num_keys))):
            mask = pattern.allows(chunk, keys)
            spans = Spans.of(mask if mask.dim() == 3 else mask[None])
            if spans is None:
                return None
            parts.append(spans)
        first = torch.cat([spans.first for spans in parts], dim=1)
        last = torch.cat([spans.last for spans in parts], dim=1)
        cache[entry] = Spans(first, last, num_keys)
    return cache[entry]
