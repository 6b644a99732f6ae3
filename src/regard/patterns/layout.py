"""The work that a pattern asks for: strips of equal rectangles, found without n² work.

Query rows are cut into blocks, and `descend` tells which keys each block needs. Blocks that need
equally many keys make a strip, which is one batched call of a kernel; where their masks are the
same too, the strip carries that one mask. A window is a single strip, but for its first blocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from regard.patterns.descent import KEY_BLOCK, Runs, descend
from regard.patterns.memory import remembered
from regard.patterns.parts import parts
from regard.patterns.pattern import Cover, Lattice, Pattern, Span
from regard.patterns.strips import Rows, Strip

_MERGED_PAIRS = 1 << 22
_WORTH_A_CALL = 1 << 13


@dataclass(frozen=True)
class Layout:
    """All strips of a pattern: every allowed pair of positions lies in exactly one of them.

    Attributes:
        strips: the strips.
        query_positions: where the queries stand.
        starts_all: whether every query of every sequence is part of some fresh strip.
        batch_size: how many sequences the pattern describes one by one, 1 if all are alike.
    """

    strips: tuple[Strip, ...]
    query_positions: Int[Tensor, "queries"]
    starts_all: bool
    batch_size: int = 1

    @property
    def num_pairs(self) -> int:
        """The number of pairs that are computed for one head of `batch_size` sequences."""
        return sum(
            strip.num_pairs * (self.batch_size if strip.batch is None else 1)
            for strip in self.strips
        )


def layout(
    pattern: Pattern, query_positions: Int[Tensor, "queries"], num_keys: int, *, block: int
) -> Layout:
    """Lay out a pattern in strips of blocks.

    Args:
        pattern: who may look at whom.
        query_positions: where the queries stand, [queries]; the keys stand at 0 … num_keys − 1.
        num_keys: the number of keys.
        block: how many queries make a block.
    """
    if block < 1:
        raise ValueError(f"block must be at least 1, got {block}")
    if not len(query_positions) or not num_keys:
        return Layout((), query_positions, starts_all=not len(query_positions))
    queries = range(int(query_positions.min()), int(query_positions.max()) + 1)
    pattern = pattern.simplified(queries, num_keys)
    batch_size = pattern.batch_size or 1
    strips: list[Strip] = []
    touched = torch.zeros(batch_size, len(query_positions), dtype=torch.bool)
    started = torch.zeros_like(touched)
    for part in parts(pattern):
        for lattice in part.lattices(query_positions, num_keys):
            fresh = not bool(touched[:, lattice.queries].any())
            found = _strips(part.pattern, lattice, query_positions, block, fresh)
            for strip in found:
                where = (slice(None) if strip.batch is None else strip.batch, strip.queries.index())
                touched[where] = True
                if fresh:
                    started[where] = True
            strips += found
    return Layout(tuple(strips), query_positions, bool(started.all()), batch_size)


def consecutive_layout(
    pattern: Pattern, first_position: int, num_queries: int, num_keys: int, block: int
) -> Layout:
    """Return the layout for queries that stand one after the other, from memory where possible."""

    def make() -> Layout:
        positions = torch.arange(first_position, first_position + num_queries)
        return layout(pattern, positions, num_keys, block=block)

    return remembered(pattern, ("layout", first_position, num_queries, num_keys, block), make)


def _strips(
    pattern: Pattern, lattice: Lattice, query_positions: Tensor, block: int, fresh: bool
) -> list[Strip]:
    whole = lattice.queries.shape == (1, len(query_positions))
    positions = query_positions[None] if whole else query_positions[lattice.queries]
    runs = descend(pattern, positions, lattice.keys, block)
    if not len(runs.batch):
        return []
    blocks = _merge(_blocks(runs, block, positions.shape[1], lattice.keys.shape[1]))
    shared = _shares_mask(blocks, pattern, positions, lattice)

    found: list[Strip] = []
    for group in _steady(blocks, _alike(blocks, shared)):
        one = int(group[0])
        classes = blocks.classes[group]
        queries = _rows(
            lattice.queries, lattice.query_step, classes, blocks.query_start[group],
            int(blocks.query_count[one]),
        )  # fmt: skip
        if blocks.gaps[one]:
            index = _with_gaps(blocks, runs, group)
            keys = Rows.listed(lattice.keys[classes[:, None], index])
        else:
            keys = _rows(
                lattice.keys, lattice.key_step, classes, blocks.key_start[group],
                int(blocks.key_count[one]),
            )  # fmt: skip
        mask = own = None
        if shared.found[one] and len(group) > 1:
            query, key = query_positions[queries[:1].index()][0], keys[:1].index()[0]
            mask = pattern.test(blocks.batch[one], query[:, None], key[None, :])
            mask = mask.expand(queries.count, keys.count)
        elif not blocks.every[one]:
            own = pattern
        batch = None if pattern.batch_size is None else int(blocks.batch[one])
        found.append(Strip(batch, queries, keys, mask, own, fresh))
    return found


@dataclass(frozen=True)
class _Blocks:
    """Query blocks and the keys that they need, in rows of the lattice; one entry a block.

    `every` says that all its pairs are allowed; `gaps` that it skips some of the keys between its
    first and its last, and then the runs from `first_run` on, `num_runs` of them, name its keys.
    """

    batch: Tensor
    classes: Tensor
    query_start: Tensor
    query_count: Tensor
    key_start: Tensor
    key_count: Tensor
    every: Tensor
    gaps: Tensor
    first_run: Tensor
    num_runs: Tensor


def _blocks(runs: Runs, block: int, num_queries: int, num_keys: int) -> _Blocks:
    name = torch.stack([runs.batch, runs.classes, runs.query_block])
    begins = torch.ones(name.shape[1], dtype=torch.bool)
    begins[1:] = (name[:, 1:] != name[:, :-1]).any(dim=0)
    first = torch.nonzero(begins).flatten()
    end = torch.cat([first[1:], torch.tensor([len(begins)])])
    num_blocks = _summed(runs.length, first, end)
    start = runs.key_block[first]
    stop = runs.key_block[end - 1] + runs.length[end - 1]
    query_start = runs.query_block[first] * block
    return _Blocks(
        batch=runs.batch[first],
        classes=runs.classes[first],
        query_start=query_start,
        query_count=torch.clamp_max(num_queries - query_start, block),
        key_start=start * KEY_BLOCK,
        key_count=num_blocks * KEY_BLOCK - torch.clamp_min(stop * KEY_BLOCK - num_keys, 0),
        every=_summed((runs.code != Cover.ALL).long(), first, end) == 0,
        gaps=num_blocks != stop - start,
        first_run=first,
        num_runs=end - first,
    )


def _summed(values: Tensor, first: Tensor, end: Tensor) -> Tensor:
    total = torch.cat([torch.zeros(1, dtype=torch.long), values.cumsum(0)])
    return total[end] - total[first]


def _merge(blocks: _Blocks) -> _Blocks:
    """Join neighbouring blocks that need the very same keys: a long call beats many short ones."""
    alike = torch.stack([blocks.batch, blocks.classes, blocks.key_start, blocks.key_count])
    same = torch.zeros_like(blocks.gaps)
    same[1:] = (alike[:, 1:] == alike[:, :-1]).all(dim=0)
    same[1:] &= blocks.query_start[1:] == blocks.query_start[:-1] + blocks.query_count[:-1]
    same[1:] &= (blocks.every[1:] == blocks.every[:-1]) & ~blocks.gaps[1:] & ~blocks.gaps[:-1]
    # A mask of its own must stay small, so a long stretch of masked blocks is cut.
    number = torch.arange(len(same))
    begin = torch.cummax(torch.where(same, 0, number), dim=0).values
    most = torch.clamp_min(_MERGED_PAIRS // (blocks.query_count * blocks.key_count), 1)
    same &= blocks.every | ((number - begin) % most != 0)

    first = torch.nonzero(~same).flatten()
    last = torch.cat([first[1:], torch.tensor([len(same)])]) - 1
    fields = {name: getattr(blocks, name)[first] for name in _Blocks.__dataclass_fields__}
    fields["query_count"] += blocks.query_start[last] - blocks.query_start[first]
    fields["query_count"] += blocks.query_count[last] - blocks.query_count[first]
    return _Blocks(**fields)


@dataclass(frozen=True)
class _Shared:
    """Which blocks have a mask that others have too, and what must agree for that."""

    found: Tensor
    traits: list[Tensor]


def _shares_mask(blocks: _Blocks, pattern: Pattern, positions: Tensor, lattice: Lattice) -> _Shared:
    """Tell which masks depend only on the distance between the block and its keys.

    They do where everything in the pattern that is not relative is constant on the rectangle.
    """
    step = lattice.query_step
    steady = step is not None and lattice.key_step is not None
    if not steady or bool((positions[:, 1:] - positions[:, :-1] != step).any()):
        return _Shared(torch.zeros_like(blocks.every), [])
    query = _span(positions, blocks.classes, blocks.query_start, blocks.query_count)
    key = _span(lattice.keys, blocks.classes, blocks.key_start, blocks.key_count)
    found = ~blocks.every & ~blocks.gaps
    traits = [key.first - query.first]
    for leaf in pattern.leaves():
        if not leaf.relative:
            cover = leaf.cover_spans(blocks.batch, query, key).long()
            found = found & (cover != Cover.SOME)
            traits.append(cover)
    return _Shared(found, traits)


def _span(positions: Tensor, classes: Tensor, start: Tensor, count: Tensor) -> Span:
    return Span(positions[classes, start], positions[classes, start + count - 1])


def _alike(blocks: _Blocks, shared: _Shared) -> list[Tensor]:
    """Group the blocks that can go through one call together."""
    traits = [blocks.batch, blocks.query_count, blocks.key_count]
    traits += [blocks.every.long(), shared.found.long()]
    traits.append(torch.where(blocks.gaps, blocks.num_runs, 0))
    traits += [torch.where(shared.found, trait, 0) for trait in shared.traits]
    _, group = torch.unique(torch.stack(traits), dim=1, return_inverse=True)
    order = torch.argsort(group, stable=True)
    return list(order.split(torch.bincount(group).tolist()))


def _steady(blocks: _Blocks, groups: list[Tensor]) -> Iterator[Tensor]:
    """Cut groups of large blocks where their distance changes: a steady strip is read in place."""
    for group in groups:
        one = group[0]
        if blocks.gaps[one] or blocks.query_count[one] * blocks.key_count[one] < _WORTH_A_CALL:
            yield group
            continue
        place = torch.stack([blocks.classes, blocks.query_start, blocks.key_start])[:, group]
        steps = place.diff(dim=1).T.tolist()
        first = 0
        for last in range(2, len(group)):
            if last - first > 1 and steps[last - 1] != steps[first]:
                yield group[first:last]
                first = last
        yield group[first:]


def _rows(
    lattice_rows: Tensor, step: int | None, classes: Tensor, start: Tensor, count: int
) -> Rows:
    if step is not None:
        return Rows.stepped(lattice_rows[classes, start], step, count)
    index = start[:, None] + torch.arange(count)
    return Rows.listed(lattice_rows[classes[:, None], index])


def _with_gaps(blocks: _Blocks, runs: Runs, group: Tensor) -> Tensor:
    """List the lattice rows of the keys of blocks that skip some, [blocks, keys]."""
    num_runs, key_count = int(blocks.num_runs[group[0]]), int(blocks.key_count[group[0]])
    chosen = (blocks.first_run[group][:, None] + torch.arange(num_runs)).flatten()
    lengths = runs.length[chosen]
    before = lengths.cumsum(0) - lengths
    within = torch.arange(int(lengths.sum())) - before.repeat_interleave(lengths)
    key_block = runs.key_block[chosen].repeat_interleave(lengths) + within
    index = key_block[:, None] * KEY_BLOCK + torch.arange(KEY_BLOCK)
    return index.view(len(group), -1)[:, :key_count]
