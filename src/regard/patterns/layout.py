"""The block-sparse layout of a pattern: strips of equal rectangles, found without n² work.

Queries are split into blocks, and `descend` finds the keys of each block. Blocks with equally many
keys form a strip, which is one batched kernel call; blocks with the same mask share it. A window is
a single strip, except for its first blocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor

from regard.patterns.blocks import Blocks, find_blocks, merge
from regard.patterns.cover import Cover, Span
from regard.patterns.descent import KEY_BLOCK, Runs, descend
from regard.patterns.layout_cache import cached
from regard.patterns.parts import parts
from regard.patterns.pattern import Lattice, Pattern
from regard.patterns.strips import Strip, StripRows, write_masks
from regard.patterns.to_list import to_list

_WORTH_A_CALL = 1 << 13


@dataclass(frozen=True)
class Layout:
    """All strips of a pattern: every allowed pair of positions lies in exactly one of them.

    Attributes:
        unwritten: the strips, without masks.
        query_positions: position of each query.
        starts_all: whether every query of every sequence is part of a fresh strip.
        batch_size: batch size of the pattern, 1 if all sequences are alike.
    """

    unwritten: tuple[Strip, ...]
    query_positions: Int[Tensor, "queries"]
    starts_all: bool
    batch_size: int = 1

    @cached_property
    def strips(self) -> tuple[Strip, ...]:
        """The strips, with masks if these are small."""
        return tuple(write_masks(self.unwritten, self.query_positions))

    @property
    def num_pairs(self) -> int:
        """The number of computed pairs per head, in all `batch_size` sequences."""
        return sum(
            strip.num_pairs * (self.batch_size if strip.batch is None else 1)
            for strip in self.unwritten
        )


def layout(
    pattern: Pattern, query_positions: Int[Tensor, "queries"], num_keys: int, *, block: int
) -> Layout:
    """Lay out a pattern in strips of blocks.

    Args:
        pattern: the pattern.
        query_positions: position of each query, [queries].
        num_keys: the number of keys, at positions 0 … num_keys − 1.
        block: queries per block.
    """
    if block < 1:
        raise ValueError(f"block must be at least 1, got {block}")
    if not len(query_positions) or not num_keys:
        return Layout((), query_positions, starts_all=not len(query_positions))
    queries = range(int(query_positions.min()), int(query_positions.max()) + 1)
    pattern = pattern.simplified(queries, num_keys)
    batch_size = pattern.batch_size or 1
    strips: list[Strip] = []
    touched = torch.zeros(batch_size, len(query_positions), dtype=torch.bool, device="cpu")
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
    """Return the cached layout of consecutive queries."""

    def make() -> Layout:
        positions = torch.arange(first_position, first_position + num_queries, device="cpu")
        return layout(pattern, positions, num_keys, block=block)

    return cached(pattern, ("layout", first_position, num_queries, num_keys, block), make)


def _strips(
    pattern: Pattern, lattice: Lattice, query_positions: Tensor, block: int, fresh: bool
) -> list[Strip]:
    whole = lattice.queries.shape == (1, len(query_positions))
    positions = query_positions[None] if whole else query_positions[lattice.queries]
    runs = descend(pattern, positions, lattice.keys, block)
    if not len(runs.batch):
        return []
    blocks = merge(find_blocks(runs, block, positions.shape[1], lattice.keys.shape[1]))
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
            keys = StripRows.listed(lattice.keys[classes[:, None], index])
        else:
            keys = _rows(
                lattice.keys, lattice.key_step, classes, blocks.key_start[group],
                int(blocks.key_count[one]),
            )  # fmt: skip
        batch = None if pattern.batch_size is None else int(blocks.batch[one])
        strip = Strip(batch, queries, keys, None, None if blocks.every[one] else pattern, fresh)
        if shared.found[one] and len(group) > 1:
            mask = strip[:1].allowed(query_positions, batch or 0, query_positions.device)
            strip = replace(strip, mask=mask, pattern=None)
        found.append(strip)
    return found


@dataclass(frozen=True)
class _Shared:
    """Which blocks may share a mask, and the traits that must agree for that."""

    found: Tensor
    traits: list[Tensor]


def _shares_mask(blocks: Blocks, pattern: Pattern, positions: Tensor, lattice: Lattice) -> _Shared:
    """Find the masks that depend only on the distance between the block and its keys.

    They do if every leaf that is not relative is constant on the rectangle.
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


def _alike(blocks: Blocks, shared: _Shared) -> list[Tensor]:
    """Group the blocks that can share one kernel call."""
    traits = [blocks.batch, blocks.query_count, blocks.key_count]
    traits += [blocks.every.long(), shared.found.long()]
    traits.append(torch.where(blocks.gaps, blocks.num_runs, 0))
    traits += [torch.where(shared.found, trait, 0) for trait in shared.traits]
    _, group = torch.unique(torch.stack(traits), dim=1, return_inverse=True)
    order = torch.argsort(group, stable=True)
    return list(order.split(to_list(torch.bincount(group))))


def _steady(blocks: Blocks, groups: list[Tensor]) -> Iterator[Tensor]:
    """Split groups of large blocks where their pitch changes: regular strips are read in place."""
    for group in groups:
        one = group[0]
        if blocks.gaps[one] or blocks.query_count[one] * blocks.key_count[one] < _WORTH_A_CALL:
            yield group
            continue
        place = torch.stack([blocks.classes, blocks.query_start, blocks.key_start])[:, group]
        steps = to_list(place.diff(dim=1).T)
        first = 0
        for last in range(2, len(group)):
            if last - first > 1 and steps[last - 1] != steps[first]:
                yield group[first:last]
                first = last
        yield group[first:]


def _rows(
    lattice_rows: Tensor, step: int | None, classes: Tensor, start: Tensor, count: int
) -> StripRows:
    if step is not None:
        return StripRows.stepped(lattice_rows[classes, start], step, count)
    index = start[:, None] + torch.arange(count, device="cpu")
    return StripRows.listed(lattice_rows[classes[:, None], index])


def _with_gaps(blocks: Blocks, runs: Runs, group: Tensor) -> Tensor:
    """List the lattice rows of the keys of blocks with gaps, [blocks, keys]."""
    num_runs, key_count = int(blocks.num_runs[group[0]]), int(blocks.key_count[group[0]])
    chosen = (blocks.first_run[group][:, None] + torch.arange(num_runs, device="cpu")).flatten()
    lengths = runs.length[chosen]
    before = lengths.cumsum(0) - lengths
    within = torch.arange(int(lengths.sum()), device="cpu") - before.repeat_interleave(lengths)
    key_block = runs.key_block[chosen].repeat_interleave(lengths) + within
    index = key_block[:, None] * KEY_BLOCK + torch.arange(KEY_BLOCK, device="cpu")
    return index.view(len(group), -1)[:, :key_count]
