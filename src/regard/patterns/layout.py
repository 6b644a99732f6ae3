"""The layout of a pattern: all rectangles to compute, as a few batched kernel calls.

`block_search` finds the keys of each block of queries. One kernel call per block would take longer
than what it computes, so blocks that need equally many keys form a *strip*, one batched call. The
layout of `window(before=64)` in blocks of 32 queries has three strips (■ all pairs of a block
allowed, ◣ and ◥ a triangle):

    key blocks      0 1 2 3 4 5
    query block 0   ◣ · · · · ·     strip 1: one rectangle of 1 key block
                1   ■ ◣ · · · ·     strip 2: one rectangle of 2 key blocks
                2   ◥ ■ ◣ · · ·     strip 3: four rectangles of 3 key blocks,
                3   · ◥ ■ ◣ · ·              which share one mask, ◥ ■ ◣
                4   · · ◥ ■ ◣ ·
                5   · · · ◥ ■ ◣

Rectangles share a mask if it depends only on the distance between query and key, and their corners
are equally far from the diagonal: then entry (r, c) is the same in each of them. So every leaf of
the pattern must be relative, or constant on the rectangle. With `& documents(ids)`, blocks inside
of a document share a mask, and those across an edge have their own. Masks that are not shared are
materialised on first use if that takes little memory, else for each piece of a strip.

Rows at a constant distance are read in place, as overlapping strided views; others are gathered.
So large blocks whose distance changes are split into several strips, and patterns that touch a
little of every block (`strided`, `columns`) are laid out as `GatheredBlocks`, by `parts`.

The result is exact: parts are disjoint, a query block has each key once, and pairs of a rectangle
that are not allowed are masked. Computed in vain are the masked pairs of blocks that an edge of the
pattern crosses. A layout costs time and memory in the number of blocks, not in queries × keys.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.patterns.block_search import KEY_BLOCK, KeyRuns, QueryBlocks, descend, query_blocks
from regard.patterns.integers import to_list
from regard.patterns.layout_cache import cached
from regard.patterns.parts import parts
from regard.patterns.pattern import Cover, GatheredBlocks, Pattern, QueryPositions, Span

WRITTEN_PAIRS = 1 << 22
"""Largest number of pairs for which the masks of a layout are materialised, a byte each."""

_WORTH_A_CALL = 1 << 13
"""Pairs of a rectangle from which on a call of its own costs less than gathering its rows."""


@dataclass(frozen=True)
class StripRows:
    """The rows of a tensor for each rectangle of a strip, equally many.

    Rectangle r has the `count` rows `start[r]`, `start[r] + step`, …; or those in `table[r]`.
    `pitch` is the distance between consecutive starts if it is constant.
    """

    count: int
    start: Int[Tensor, "rectangles"]
    step: int = 1
    pitch: int | None = None
    table: Int[Tensor, "rectangles count"] | None = None

    @staticmethod
    def listed(table: Int[Tensor, "rectangles count"]) -> "StripRows":
        """Return rows listed in a table."""
        return StripRows(table.shape[1], table[:, 0], table=table)

    @staticmethod
    def stepped(start: Int[Tensor, "rectangles"], step: int, count: int) -> "StripRows":
        """Return rows at a constant step."""
        pitch = int(start[1] - start[0]) if len(start) > 1 else 0
        regular = pitch >= 0 and bool((start.diff() == pitch).all())
        return StripRows(count, start, step, pitch if regular else None)

    def part(self, first: int, count: int) -> "StripRows":
        """Return `count` rows of each rectangle, from `first` on."""
        if self.table is not None:
            return StripRows.listed(self.table[:, first : first + count])
        return StripRows(count, self.start + first * self.step, self.step, self.pitch)

    def index(self) -> Int[Tensor, "rectangles count"]:
        """Return the index of every row."""
        if self.table is not None:
            return self.table
        return self.start[:, None] + self.step * torch.arange(self.count, device="cpu")

    def positions(
        self, listed: Int[Tensor, "rows"] | None, device: torch.device
    ) -> Int[Tensor, "rectangles count"]:
        """Return the position of every row, on a device: its index if they are not listed."""
        index = self.index()
        return (index if listed is None else listed[index]).to(device)

    def __getitem__(self, part: slice) -> "StripRows":
        assert part.step is None, "the pitch is that of neighbours"
        table = None if self.table is None else self.table[part]
        return StripRows(self.count, self.start[part], self.step, self.pitch, table)


@dataclass(frozen=True)
class Strip:
    """Equal rectangles of one part of a pattern: one batched kernel call.

    Attributes:
        batch: the sequence of the batch; None if the rectangles hold for all.
        queries: the query rows of each rectangle.
        keys: the key rows of each rectangle.
        mask: the mask of each rectangle, or of all; None if all pairs are allowed or `pattern` is
            set.
        pattern: computes the mask, if that is too large to keep.
        fresh: whether no earlier strip of the layout has these queries.
    """

    batch: int | None
    queries: StripRows
    keys: StripRows
    mask: Bool[Tensor, "rectangles_or_1 queries keys"] | None
    pattern: Pattern | None
    fresh: bool

    @property
    def num_rectangles(self) -> int:
        return len(self.queries.start)

    @property
    def num_pairs(self) -> int:
        """The number of computed query–key pairs per head."""
        return self.num_rectangles * self.queries.count * self.keys.count

    def __getitem__(self, part: slice) -> "Strip":
        mask = self.mask
        mask = mask[part] if mask is not None and len(mask) > 1 else mask
        return replace(self, queries=self.queries[part], keys=self.keys[part], mask=mask)

    def of_queries(self, first: int, count: int) -> "Strip":
        """Return up to `count` queries of each rectangle, from `first` on."""
        count = min(count, self.queries.count - first)
        mask = None if self.mask is None else self.mask[:, first : first + count]
        return replace(self, queries=self.queries.part(first, count), mask=mask)

    def allowed(
        self,
        query_positions: Int[Tensor, "all_queries"],
        batch: int,
        device: torch.device,
        key_positions: Int[Tensor, "all_keys"] | None = None,
    ) -> Bool[Tensor, "rectangles_or_1 queries keys"] | None:
        """Return the mask of each rectangle, or None if all pairs are allowed.

        Args:
            query_positions: position of each query.
            batch: the sequence of the batch.
            device: device of the result.
            key_positions: position of each key; its index by default.
        """
        if self.mask is not None:
            return self.mask.to(device)
        if self.pattern is None:
            return None
        query = self.queries.positions(query_positions, device)[:, :, None]
        key = self.keys.positions(key_positions, device)[:, None, :]
        allowed = self.pattern.test(torch.tensor(batch, device=device), query, key)
        return allowed.expand(self.num_rectangles, self.queries.count, self.keys.count)


@dataclass(frozen=True)
class Layout:
    """All strips of a pattern: every allowed pair of positions lies in exactly one of them.

    Attributes:
        unwritten: the strips, without masks.
        query_positions: position of each query.
        starts_all: whether every query of every sequence is part of a fresh strip.
        batch_size: batch size of the pattern, 1 if all sequences are alike.
        key_positions: position of each key; its index if None.
    """

    unwritten: tuple[Strip, ...]
    query_positions: QueryPositions
    starts_all: bool
    batch_size: int = 1
    key_positions: Int[Tensor, "all_keys"] | None = None

    @cached_property
    def strips(self) -> tuple[Strip, ...]:
        """The strips, with masks if these are small: most layouts are used often."""
        strips, queries, keys = self.unwritten, self.query_positions, self.key_positions
        if sum(strip.num_pairs for strip in strips if strip.pattern is not None) > WRITTEN_PAIRS:
            return strips
        masks = [strip.allowed(queries, strip.batch or 0, queries.device, keys) for strip in strips]
        return tuple(
            replace(strip, mask=mask, pattern=None)
            for strip, mask in zip(strips, masks, strict=True)
        )

    @property
    def num_pairs(self) -> int:
        """The number of computed pairs per head, in all `batch_size` sequences."""
        return sum(
            strip.num_pairs * (self.batch_size if strip.batch is None else 1)
            for strip in self.unwritten
        )


def layout(
    pattern: Pattern, query_positions: QueryPositions, num_keys: int, *, block: int
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

    # 1. Drop members that have no effect here: others may be laid out once for the whole batch.
    queries = range(int(query_positions.min()), int(query_positions.max()) + 1)
    pattern = pattern.simplified(queries, num_keys)
    batch_size = pattern.batch_size or 1

    # 2. Lay out the parts one by one. A strip is fresh if no earlier part has queries of its own.
    all_strips: list[Strip] = []
    touched = torch.zeros(batch_size, len(query_positions), dtype=torch.bool, device="cpu")
    started = torch.zeros_like(touched)
    for part in parts(pattern):
        for gathered in part.gathered_blocks(query_positions, num_keys):
            fresh = not bool(touched[:, gathered.queries].any())
            strips = _strips(part.pattern, gathered, query_positions, block, fresh)
            for strip in strips:
                sequences = slice(None) if strip.batch is None else strip.batch
                rows = (sequences, strip.queries.index())
                touched[rows] = True
                if fresh:
                    started[rows] = True
            all_strips += strips
    return Layout(tuple(all_strips), query_positions, bool(started.all()), batch_size)


def consecutive_layout(
    pattern: Pattern, first_position: int, num_queries: int, num_keys: int, block: int
) -> Layout:
    """Return the cached layout of consecutive queries."""

    def make() -> Layout:
        positions = torch.arange(first_position, first_position + num_queries, device="cpu")
        return layout(pattern, positions, num_keys, block=block)

    return cached(pattern, ("layout", first_position, num_queries, num_keys, block), make)


def _strips(
    pattern: Pattern, gathered: GatheredBlocks, query_positions: Tensor, block: int, fresh: bool
) -> list[Strip]:
    """Return the strips of one part of a pattern."""
    # 1. Find the keys of each query block.
    has_all_queries = gathered.queries.shape == (1, len(query_positions))
    positions = query_positions[None] if has_all_queries else query_positions[gathered.queries]
    runs = descend(pattern, positions, gathered.keys, block)
    if not len(runs.batch):
        return []
    blocks = query_blocks(runs, block, positions.shape[1], gathered.keys.shape[1])

    # 2. Group the blocks that one kernel call can compute.
    is_shared, mask_traits = _shared_masks(blocks, pattern, positions, gathered)
    groups = _group_batchable(blocks, is_shared, mask_traits)

    # 3. Make a strip of each group. What is read of its first block is the same for all.
    strips: list[Strip] = []
    for group in _split_irregular(blocks, groups):
        first = int(group[0])
        batch = None if pattern.batch_size is None else int(blocks.batch[first])
        queries = _query_rows(gathered, blocks, group)
        keys = _key_rows(gathered, blocks, runs, group)
        masked_by = None if blocks.every[first] else pattern
        strip = Strip(batch, queries, keys, None, masked_by, fresh)
        if is_shared[first] and len(group) > 1:
            mask = strip[:1].allowed(query_positions, batch or 0, query_positions.device)
            strip = replace(strip, mask=mask, pattern=None)
        strips.append(strip)
    return strips


def _shared_masks(
    blocks: QueryBlocks, pattern: Pattern, positions: Tensor, gathered: GatheredBlocks
) -> tuple[Tensor, list[Tensor]]:
    """Return which blocks may share a mask, and the traits that must agree for that.

    They may if the mask depends only on the distance between the block and its keys: if every leaf
    that is not relative is constant on the rectangle.
    """
    step = gathered.query_step
    is_stepped = step is not None and gathered.key_step is not None
    if not is_stepped or bool((positions[:, 1:] - positions[:, :-1] != step).any()):
        return torch.zeros_like(blocks.every), []

    query = _span(positions, blocks.classes, blocks.query_start, blocks.query_count)
    key = _span(gathered.keys, blocks.classes, blocks.key_start, blocks.key_count)
    is_shared = ~blocks.every & ~blocks.gaps
    traits = [key.first - query.first]
    for leaf in pattern.leaves():
        if not leaf.relative:
            cover = leaf.cover_spans(blocks.batch, query, key).long()
            is_shared = is_shared & (cover != Cover.SOME)
            traits.append(cover)
    return is_shared, traits


def _span(positions: Tensor, classes: Tensor, start: Tensor, count: Tensor) -> Span:
    return Span(positions[classes, start], positions[classes, start + count - 1])


def _group_batchable(
    blocks: QueryBlocks, is_shared: Tensor, mask_traits: list[Tensor]
) -> list[Tensor]:
    """Group the blocks that one kernel call can compute: equal sizes, and the same kind of mask."""
    traits = [blocks.batch, blocks.query_count, blocks.key_count]
    traits += [blocks.every.long(), is_shared.long()]
    traits.append(torch.where(blocks.gaps, blocks.num_runs, 0))
    traits += [torch.where(is_shared, trait, 0) for trait in mask_traits]
    _, group = torch.unique(torch.stack(traits), dim=1, return_inverse=True)
    order = torch.argsort(group, stable=True)
    return list(order.split(to_list(torch.bincount(group))))


def _split_irregular(blocks: QueryBlocks, groups: list[Tensor]) -> Iterator[Tensor]:
    """Split groups of large blocks where their pitch changes: regular strips are read in place."""
    for group in groups:
        block = group[0]
        num_pairs = blocks.query_count[block] * blocks.key_count[block]
        if blocks.gaps[block] or num_pairs < _WORTH_A_CALL:
            yield group
            continue

        corner = torch.stack([blocks.classes, blocks.query_start, blocks.key_start])[:, group]
        steps = to_list(corner.diff(dim=1).T)
        first = 0
        for last in range(2, len(group)):
            if last - first > 1 and steps[last - 1] != steps[first]:
                yield group[first:last]
                first = last
        yield group[first:]


def _query_rows(gathered: GatheredBlocks, blocks: QueryBlocks, group: Tensor) -> StripRows:
    classes, count = blocks.classes[group], int(blocks.query_count[group[0]])
    return _rows(gathered.queries, gathered.query_step, classes, blocks.query_start[group], count)


def _key_rows(
    gathered: GatheredBlocks, blocks: QueryBlocks, runs: KeyRuns, group: Tensor
) -> StripRows:
    classes, count = blocks.classes[group], int(blocks.key_count[group[0]])
    if not blocks.gaps[group[0]]:
        return _rows(gathered.keys, gathered.key_step, classes, blocks.key_start[group], count)
    index = _with_gaps(blocks, runs, group)
    return StripRows.listed(gathered.keys[classes[:, None], index])


def _rows(
    gathered_rows: Tensor, step: int | None, classes: Tensor, start: Tensor, count: int
) -> StripRows:
    if step is not None:
        return StripRows.stepped(gathered_rows[classes, start], step, count)
    index = start[:, None] + torch.arange(count, device="cpu")
    return StripRows.listed(gathered_rows[classes[:, None], index])


def _with_gaps(blocks: QueryBlocks, runs: KeyRuns, group: Tensor) -> Tensor:
    """List the keys of blocks with gaps, as places in the gathered rows, [blocks, keys]."""
    # 1. List the runs of all blocks of the group, equally many for each.
    num_runs, key_count = int(blocks.num_runs[group[0]]), int(blocks.key_count[group[0]])
    chosen = (blocks.first_run[group][:, None] + torch.arange(num_runs, device="cpu")).flatten()
    lengths = runs.length[chosen]

    # 2. List the key blocks of these runs.
    before = lengths.cumsum(0) - lengths
    within = torch.arange(int(lengths.sum()), device="cpu") - before.repeat_interleave(lengths)
    key_block = runs.key_block[chosen].repeat_interleave(lengths) + within

    # 3. List their keys; the last block may be smaller.
    index = key_block[:, None] * KEY_BLOCK + torch.arange(KEY_BLOCK, device="cpu")
    return index.view(len(group), -1)[:, :key_count]
