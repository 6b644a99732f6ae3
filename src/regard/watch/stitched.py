"""Calls of a text that was generated step by step, joined into one for each module."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from regard.patterns import Pattern, given
from regard.patterns.causal import Causal
from regard.patterns.pattern import Both
from regard.positions import Bias
from regard.positions import given as given_bias
from regard.positions.given import Given
from regard.watch.call import Call
from regard.watch.check import Check
from regard.watch.held import Held, Room
from regard.watch.spans import Placed, Spans

_CHUNK = 1 << 22
"""How many pairs of a pattern are asked for together."""


def stitched(calls: Sequence[Call]) -> list[Call]:
    """Join calls of one module where each has the keys of the one before.

    Returns:
        A call for each module and each text, in the order in which they began.

    Raises:
        ValueError: a call can't be joined to the one before it.
    """
    chains: list[_Chain] = []
    latest: dict[str, _Chain] = {}
    texts: list[list[_Chain]] = [[]]
    for call in calls:
        chain = latest.get(call.module)
        if chain is not None and not chain.continues(call):
            # Another text has begun, for the other modules too.
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
    """Raise ValueError if nothing says that calls which look at another sequence are of one text.

    They all look at the same keys, whichever text and whichever beam they are of. Only
    self-attention that was called as often, with as many queries, tells.
    """
    steps = [chain.num_queries for chain in text if chain.first.looks == "self"]
    for chain in text:
        if len(chain.parts) > 1 and chain.first.looks == "cross" and chain.num_queries not in steps:
            raise ValueError(
                f"{chain.first} and {len(chain.parts) - 1} others look at the same keys of another "
                "sequence, which does not tell whether they are of one text: watch the "
                "self-attention of that decoder too"
            )


@dataclass(eq=False)
class _Chain:
    """Calls of a module that follow each other.

    Attributes:
        first: the first of them.
        parts: all of them, with the number of keys that had been dropped before each.
        new_keys: the keys that came with each.
        num_keys: how many keys there have been.
    """

    first: Call
    parts: list[tuple[Held, int]] = field(init=False)
    checks: list[Check] = field(init=False)
    new_keys: list[Float[Tensor, "batch key_heads keys key_dim"]] = field(init=False)
    num_keys: int = field(init=False)

    def __post_init__(self) -> None:
        held = _held(self.first)
        self.parts, self.checks = [(held, 0)], [self.first.check]
        self.num_keys = held.used
        self.new_keys = [held.key[:, :, : held.used]]

    @property
    def num_queries(self) -> list[int]:
        """How many queries each of them has."""
        return [held.query.shape[2] for held, _ in self.parts]

    def continues(self, call: Call) -> bool:
        """Say whether a call goes on with the text; if not, it must begin one.

        Raises:
            ValueError: it does neither.
        """
        held, before = _held(call), self.parts[-1][0]
        new = 0 if call.looks == "cross" else call.queries
        dropped = self.num_keys + new - held.used
        # If all were dropped, nothing says that it goes on.
        if held.query.shape[:2] == before.query.shape[:2] and 0 <= dropped < self.num_keys:
            if held.room is before.room and not dropped:
                return True
            if torch.equal(
                self._latest(self.num_keys - dropped), held.key[:, :, : held.used - new]
            ):
                return True
        if held.used == call.queries or call.looks == "cross":
            return False
        raise ValueError(
            f"{call} looks at {held.used - call.queries} earlier keys that are not those of the "
            "call before: the cache was reordered, as beam search does, or cut"
        )

    def _latest(self, count: int) -> Float[Tensor, "batch key_heads keys key_dim"]:
        """Return the keys that came last."""
        parts: list[Tensor] = []
        missing = count
        for keys in reversed(self.new_keys):
            parts.append(keys)
            missing -= keys.shape[2]
            if missing <= 0:
                break
        return torch.cat(parts[::-1], dim=2)[:, :, -count:]

    def add(self, call: Call) -> None:
        """Add a call that goes on with the text."""
        held = _held(call)
        new = 0 if call.looks == "cross" else call.queries
        self.num_keys += new
        self.parts.append((held, self.num_keys - held.used))
        self.checks.append(call.check)
        self.new_keys.append(held.key[:, :, held.used - new : held.used])

    def joined(self, index: int, known: dict[tuple[object, ...], Spans]) -> Call:
        """Return one call for all of them."""
        if len(self.parts) == 1:
            return replace(self.first, index=index)
        held = self.parts[0][0]
        query = torch.cat([one.query for one, _ in self.parts], dim=2)
        key = torch.cat(self.new_keys, dim=2)
        pattern, first_query = self._pattern(known)
        whole = replace(
            held,
            query=query,
            room=Room(key),
            num_keys=self.num_keys,
            pattern=pattern,
            bias=self._bias(first_query, query.shape[2]),
            positions=first_query,
            value=None,
        )
        return replace(
            self.first,
            index=index,
            queries=query.shape[2],
            keys=self.num_keys,
            check=_worst(self.checks),
            pattern=pattern,
            held=whole,
        )

    def _pattern(self, known: dict[tuple[object, ...], Spans]) -> Placed:
        """Return who may look at whom in the whole text."""
        batch, held = self.first.batch, self.parts[0][0]
        first_query = self.num_keys - sum(one.query.shape[2] for one, _ in self.parts)
        alike = _looks_back(held.pattern) and all(
            one.pattern == held.pattern and not dropped for one, dropped in self.parts
        )
        if alike and held.positions == first_query and self.first.looks == "self":
            return Placed(held.pattern, first_query)
        rows: list[tuple[Tensor, Tensor]] = []
        for one, dropped in self.parts:
            spans = _spans(one, known)
            if spans is None:
                raise ValueError(
                    f"calls of {self.first.module} can't be joined: their pattern, {one.pattern}, "
                    "has gaps and is not the same in all of them"
                )
            empty = spans.first > spans.last
            first = (spans.first + dropped).masked_fill(empty, self.num_keys)
            rows.append((first, (spans.last + dropped).masked_fill(empty, -1)))
        first, last = (
            torch.cat([part.expand(batch, -1) for part in parts], dim=1)
            for parts in zip(*rows, strict=True)
        )
        placed = Spans(first, last, self.num_keys).named(batch, cross=self.first.looks == "cross")
        if placed is not None:
            return placed
        keys = torch.arange(self.num_keys, device="cpu")
        mask = (keys >= first[..., None]) & (keys <= last[..., None])
        return Placed(given(mask), first_query)

    def _bias(self, first_query: int, num_queries: int) -> Bias | None:
        """Return what order does to a score in the whole text."""
        biases = [one.bias for one, _ in self.parts]
        if all(bias == biases[0] for bias in biases):
            return biases[0]
        numbers = [bias.values for bias in biases if isinstance(bias, Given)]
        if len(numbers) < len(biases):
            raise ValueError(
                f"calls of {self.first.module} can't be joined: what is added to their scores "
                "differs from call to call"
            )
        batch, heads = (max(x.shape[axis] for x in numbers) for axis in (0, 1))
        whole = numbers[0].new_zeros(batch, heads, num_queries, self.num_keys)
        row = 0
        for values, (_, dropped) in zip(numbers, self.parts, strict=True):
            stop = row + values.shape[2]
            width = min(values.shape[3], self.num_keys - dropped)
            whole[:, :, row:stop, dropped : dropped + width] = values[..., :width]
            row = stop
        return given_bias(whole, first_query=first_query)


def _looks_back(pattern: Pattern) -> bool:
    """Say whether no query may look at keys behind its place, so that later keys change nothing."""
    if isinstance(pattern, Both):
        return _looks_back(pattern.first) or _looks_back(pattern.second)
    return isinstance(pattern, Causal)


def _held(call: Call) -> Held:
    if isinstance(call.held, Held):
        return call.parts
    raise ValueError(f"{call} can't be joined to others: its queries and keys were not kept")


def _spans(held: Held, known: dict[tuple[object, ...], Spans]) -> Spans | None:
    """Return which keys each query of a call may look at; layers share what is known."""
    positions = held.query_positions
    which = (held.pattern, len(positions), int(positions[0]), held.num_keys)
    if which not in known:
        keys, pattern = range(held.num_keys), held.pattern
        parts: list[Spans] = []
        for some in positions.split(max(1, _CHUNK // max(1, held.num_keys))):
            mask = pattern.allows(some, keys)
            spans = Spans.of(mask if mask.dim() == 3 else mask[None])
            if spans is None:
                return None
            parts.append(spans)
        first, last = (
            torch.cat([getattr(part, name) for part in parts], dim=1) for name in ("first", "last")
        )
        known[which] = Spans(first, last, held.num_keys)
    return known[which]


def _worst(checks: Sequence[Check]) -> Check:
    """Return the check that says most against a call: one that failed, or was not made."""
    for wanted in (False, None):
        for check in checks:
            if check.passed is wanted:
                return check
    return max(checks, key=lambda check: check.gap or 0.0)
