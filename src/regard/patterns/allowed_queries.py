"""How many queries may attend to each key: counted exactly, without visiting most pairs.

`descend` finds runs of blocks. One that is allowed as a whole counts as many queries as it has
rows: these are added at the first block of a run, subtracted behind its last, and cumulated.
Only in blocks that an edge of the pattern crosses are pairs tested. `causal()`, in blocks:

    ? · · ·
    ■ ? · ·       full     3 2 1 0   blocks of queries for each key
    ■ ■ ? ·       tested   1 1 1 1   triangles
    ■ ■ ■ ?

One thread, 4,096 positions: `causal()` 8 ms, `causal()` without 40 `pairs` 0.7 s, as long as one
call of `attend` of 4 heads. Tried: attention with scores of 0, whose e^lse is the count (twice as
long), and sums of the masks of a layout (14 s for 65,536 causal positions, 55 ms here): both test
whole rows of blocks if one of them needs a mask.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from regard.patterns.block_search import KEY_BLOCK, descend
from regard.patterns.layout_cache import cached
from regard.patterns.parts import PatternPart, parts
from regard.patterns.pattern import Cover, GatheredBlocks, Pattern

_BLOCK = 64
"""Queries per block, as in layouts for the CPU."""

_TESTED = 2**18
"""Number of pairs that are tested at once: fewer cost calls, more leave the processor's cache."""


def num_allowed_queries(
    pattern: Pattern, queries: range, num_keys: int
) -> Int[Tensor, "batch_or_1 keys"]:
    """Return how many queries may attend to each key.

    Args:
        pattern: the pattern.
        queries: positions of the queries, not empty.
        num_keys: the number of keys, at least 1.
    """

    def count() -> Int[Tensor, "batch_or_1 keys"]:
        simple = pattern.simplified(queries, num_keys)
        counts = torch.zeros(simple.batch_size or 1, num_keys, dtype=torch.long, device="cpu")
        positions = torch.arange(queries.start, queries.stop, device="cpu")
        for part in parts(simple):
            # A part that is alike in all sequences counts for each of them.
            of_part = torch.zeros_like(counts[: part.pattern.batch_size or 1])
            for gathered in part.gathered_blocks(positions, num_keys):
                _add(of_part, part, gathered, positions)
            counts += of_part
        return counts

    return cached(pattern, ("allowed queries", queries, num_keys), count)


def _add(
    counts: Int[Tensor, "batch_or_1 keys"],
    part: PatternPart,
    gathered: GatheredBlocks,
    positions: Int[Tensor, "queries"],
) -> None:
    """Add the pairs of gathered blocks to the counts."""
    queries, keys = positions[gathered.queries], gathered.keys
    (num_classes, num_rows), num_columns = queries.shape, keys.shape[1]
    height, width = min(_BLOCK, num_rows), min(KEY_BLOCK, num_columns)
    runs = descend(part.pattern, queries, keys, _BLOCK)

    # 1. Runs of full blocks.
    is_full = runs.code == Cover.ALL
    num_full_rows = (num_rows - runs.query_block * _BLOCK).clamp_max(height) * is_full
    sizes = (len(counts), num_classes, -(-num_columns // KEY_BLOCK) + 1)
    changes = torch.zeros(sizes, dtype=torch.long, device="cpu")
    for block, change in (
        (runs.key_block, num_full_rows),
        (runs.key_block + runs.length, -num_full_rows),
    ):
        changes.index_put_((runs.batch, runs.classes, block), change, accumulate=True)
    by_key = changes.cumsum(dim=2).repeat_interleave(KEY_BLOCK, dim=2)[..., :num_columns]
    counts.index_add_(1, keys.flatten(), by_key.flatten(1))

    # 2. Pairs of other blocks, [blocks, keys, queries]; the last blocks are smaller.
    for chosen in (~is_full).nonzero().split(max(1, _TESTED // (height * width))):
        batch, classes = runs.batch[chosen], runs.classes[chosen]
        rows = runs.query_block[chosen] * _BLOCK + torch.arange(height, device="cpu")
        columns = runs.key_block[chosen] * KEY_BLOCK + torch.arange(width, device="cpu")
        query = queries[classes, rows.clamp_max(num_rows - 1)][:, None, :]
        key = keys[classes, columns.clamp_max(num_columns - 1)]
        allowed = part.pattern.test(batch[..., None], query, key[..., None])
        inside = (rows < num_rows)[:, None, :] & (columns < num_columns)[..., None]
        counts.index_put_((batch, key), (allowed & inside).sum(dim=2), accumulate=True)
