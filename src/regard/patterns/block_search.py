"""Find the keys that each block of queries needs, without visiting the pairs of a pattern.

Kernels compute rectangles, and the mask of a million positions has 10¹² pairs. So the matrix is
cut into blocks of `block` queries × 32 keys, and squares of these are classified by
`Pattern.cover_spans`, from one that holds the whole matrix down to single blocks. Here `causal()`
on 4 × 4 blocks (■ all pairs allowed, · none, ? some):

    scale 4         scale 2         scale 1
    ? ? ? ?         ? ? · ·         ? · · ·
    ? ? ? ?         ? ? · ·         ■ ? · ·
    ? ? ? ?         ■ ■ ? ?         ■ ■ ? ·
    ? ? ? ?         ■ ■ ? ?         ■ ■ ■ ?

1. Squares with cover NONE are dropped, those with ALL are recorded, those with SOME are split into
   four. All squares of one scale are a single call of `cover_spans`. Of the smallest ones, SOME is
   recorded too: such blocks get a mask.
2. A recorded square becomes a *run* of key blocks for each of its query blocks. In the last row
   above, these are key blocks 0 and 1 (ALL), key block 2 (ALL) and key block 3 (SOME).
3. The runs of a query block make up the rectangle to compute: neighbouring keys, or with gaps.
   Neighbouring query blocks that need the same keys are merged.

The result is exact, although covers need not be: NONE and ALL are certain, and a block that is
SOME without need costs a mask, no wrong pair. Of queries in any order, the span of a block goes
from its lowest to its highest position, for which that holds too.

Time and memory grow with the number of runs, not with the area: for a window over n positions
with n, for `causal` with n / block · log(n). A square that is split is crossed by the edge of the
pattern; there are few of these, at every scale.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int, Int8
from torch import Tensor

from regard.patterns.integers import RangeExtrema
from regard.patterns.pattern import Cover, Pattern, Span

KEY_BLOCK = 32
"""Keys come in multiples of this: small enough to trim, and whole vector registers."""

_MERGED_PAIRS = 1 << 22
"""Pairs up to which masked blocks are merged: their mask is materialised, a byte each."""


@dataclass(frozen=True)
class KeyRuns:
    """Sorted runs of key blocks, one entry per run.

    Attributes:
        batch: the sequence of the batch.
        classes: the class of the gathered blocks.
        query_block: index of the query block in its class.
        key_block: index of the run's first key block.
        length: number of key blocks.
        code: `Cover.SOME` or `Cover.ALL`.
    """

    batch: Int[Tensor, "runs"]
    classes: Int[Tensor, "runs"]
    query_block: Int[Tensor, "runs"]
    key_block: Int[Tensor, "runs"]
    length: Int[Tensor, "runs"]
    code: Int8[Tensor, "runs"]


@dataclass(frozen=True)
class QueryBlocks:
    """Blocks of queries and their keys, in rows of the gathered blocks; one entry per block.

    `every`: all pairs are allowed. `gaps`: the keys are not contiguous; the `num_runs` runs from
    `first_run` on list them.
    """

    batch: Int[Tensor, "blocks"]
    classes: Int[Tensor, "blocks"]
    query_start: Int[Tensor, "blocks"]
    query_count: Int[Tensor, "blocks"]
    key_start: Int[Tensor, "blocks"]
    key_count: Int[Tensor, "blocks"]
    every: Bool[Tensor, "blocks"]
    gaps: Bool[Tensor, "blocks"]
    first_run: Int[Tensor, "blocks"]
    num_runs: Int[Tensor, "blocks"]


def descend(
    pattern: Pattern,
    queries: Int[Tensor, "classes query_rows"],
    keys: Int[Tensor, "classes key_rows"],
    block: int,
) -> KeyRuns:
    """Find the runs of key blocks of each query block.

    Args:
        pattern: the pattern.
        queries: positions of the queries of each class.
        keys: positions of the keys of each class, ascending.
        block: queries per block.
    """
    num_classes, num_queries = queries.shape
    num_keys = keys.shape[1]
    num_rows, num_columns = -(-num_queries // block), -(-num_keys // KEY_BLOCK)
    ascending = bool((queries[:, 1:] >= queries[:, :-1]).all())
    extrema = None if ascending else RangeExtrema(queries.flatten(), queries.flatten())

    # 1. Start with one square that holds the whole matrix, for each sequence and class.
    scale = 1
    while scale < max(num_rows, num_columns):
        scale *= 2
    num_sequences = pattern.batch_size or 1
    batch = torch.arange(num_sequences, device="cpu").repeat_interleave(num_classes)
    classes = torch.arange(num_classes, device="cpu").repeat(num_sequences)
    squares = _Squares(batch, classes, torch.zeros_like(batch), torch.zeros_like(batch))

    recorded: list[tuple[Tensor, ...]] = []
    while True:
        # 2. Classify all squares of this scale.
        classes = squares.classes
        first, last = _ends(squares.row, scale * block, num_queries)
        if extrema is None:
            query = Span(queries[classes, first], queries[classes, last])
        else:
            query = Span(*extrema(classes * num_queries + first, classes * num_queries + last))
        first, last = _ends(squares.column, scale * KEY_BLOCK, num_keys)
        key = Span(keys[classes, first], keys[classes, last])
        code = pattern.cover_spans(squares.batch, query, key)

        # 3. Record full squares, and of the smallest ones those that are partly allowed too.
        settled = code == Cover.ALL if scale > 1 else code != Cover.NONE
        recorded.append(_runs(squares.at(settled), code[settled], scale, num_rows, num_columns))
        if scale == 1:
            break

        # 4. Split the others into four.
        scale //= 2
        squares = _quarters(squares.at(code == Cover.SOME), scale, num_rows, num_columns)

    # 5. Sort by query block and key block: they were found by scale.
    runs = KeyRuns(*(torch.cat(tensors) for tensors in zip(*recorded, strict=True)))
    query_block = (runs.batch * num_classes + runs.classes) * num_rows + runs.query_block
    order = torch.argsort(query_block * num_columns + runs.key_block)
    return KeyRuns(*(getattr(runs, field)[order] for field in KeyRuns.__dataclass_fields__))


class _Squares(NamedTuple):
    """Squares of scale × scale blocks, one entry per square; places are counted in squares."""

    batch: Tensor
    classes: Tensor
    row: Tensor
    column: Tensor

    def at(self, chosen: Tensor) -> "_Squares":
        """Return the squares at the places of a mask."""
        return _Squares(*(x[chosen] for x in self))


def _ends(number: Tensor, size: int, total: int) -> tuple[Tensor, Tensor]:
    """Return the first and the last row of parts of `size` rows; the last part may be smaller."""
    first = number * size
    return first, torch.clamp_max(first + size, total) - 1


def _runs(
    squares: _Squares, code: Tensor, scale: int, num_rows: int, num_columns: int
) -> tuple[Tensor, ...]:
    """Return the fields of a run for each query block of each square."""
    row = (squares.row[:, None] * scale + torch.arange(scale, device="cpu")).flatten()
    fields = (squares.batch, squares.classes, squares.column * scale, code)
    batch, classes, key_block, code = (x.repeat_interleave(scale) for x in fields)
    length = torch.clamp_max(num_columns - key_block, scale)

    # The sides are powers of two, so that squares reach beyond the matrix.
    inside = row < num_rows
    return tuple(x[inside] for x in (batch, classes, row, key_block, length, code))


def _quarters(squares: _Squares, scale: int, num_rows: int, num_columns: int) -> _Squares:
    """Return the quarters of squares, `scale` being theirs; without those beyond the matrix."""
    half = torch.arange(2, device="cpu")
    row = (2 * squares.row[:, None, None] + half[:, None]).expand(-1, -1, 2).flatten()
    column = (2 * squares.column[:, None, None] + half).expand(-1, 2, -1).flatten()
    batch, classes = (x.repeat_interleave(4) for x in (squares.batch, squares.classes))
    inside = (row * scale < num_rows) & (column * scale < num_columns)
    return _Squares(batch, classes, row, column).at(inside)


def query_blocks(runs: KeyRuns, block: int, num_queries: int, num_keys: int) -> QueryBlocks:
    """Return the query blocks of runs, neighbouring ones with the same keys merged."""
    # 1. Find where the runs of each query block begin and end.
    label = torch.stack([runs.batch, runs.classes, runs.query_block])
    begins = torch.ones(label.shape[1], dtype=torch.bool, device="cpu")
    begins[1:] = (label[:, 1:] != label[:, :-1]).any(dim=0)
    first = torch.nonzero(begins).flatten()
    end = torch.cat([first[1:], torch.tensor([len(begins)], device="cpu")])

    # 2. The keys go from the first run to the last; there are gaps if runs hold fewer blocks.
    num_key_blocks = _summed(runs.length, first, end)
    start = runs.key_block[first]
    stop = runs.key_block[end - 1] + runs.length[end - 1]
    query_start = runs.query_block[first] * block
    blocks = QueryBlocks(
        batch=runs.batch[first],
        classes=runs.classes[first],
        query_start=query_start,
        query_count=torch.clamp_max(num_queries - query_start, block),
        key_start=start * KEY_BLOCK,
        key_count=num_key_blocks * KEY_BLOCK - torch.clamp_min(stop * KEY_BLOCK - num_keys, 0),
        every=_summed((runs.code != Cover.ALL).long(), first, end) == 0,
        gaps=num_key_blocks != stop - start,
        first_run=first,
        num_runs=end - first,
    )
    return _merged(blocks)


def _summed(values: Tensor, first: Tensor, end: Tensor) -> Tensor:
    """Return the sum of each stretch of values."""
    total = torch.cat([torch.zeros(1, dtype=torch.long, device="cpu"), values.cumsum(0)])
    return total[end] - total[first]


def _merged(blocks: QueryBlocks) -> QueryBlocks:
    """Merge neighbouring blocks with the same keys: one long call beats many short ones."""
    # 1. Find blocks that continue the one before.
    keys = torch.stack([blocks.batch, blocks.classes, blocks.key_start, blocks.key_count])
    same = torch.zeros_like(blocks.gaps)
    same[1:] = (keys[:, 1:] == keys[:, :-1]).all(dim=0)
    same[1:] &= blocks.query_start[1:] == blocks.query_start[:-1] + blocks.query_count[:-1]
    same[1:] &= (blocks.every[1:] == blocks.every[:-1]) & ~blocks.gaps[1:] & ~blocks.gaps[:-1]

    # 2. Masks must stay small, so long stretches of masked blocks are split.
    number = torch.arange(len(same), device="cpu")
    begin = torch.cummax(torch.where(same, 0, number), dim=0).values
    max_blocks = torch.clamp_min(_MERGED_PAIRS // (blocks.query_count * blocks.key_count), 1)
    same &= blocks.every | ((number - begin) % max_blocks != 0)

    # 3. Of each stretch, keep the first block, and give it the queries up to the last.
    first = torch.nonzero(~same).flatten()
    last = torch.cat([first[1:], torch.tensor([len(same)], device="cpu")]) - 1
    fields = {name: getattr(blocks, name)[first] for name in QueryBlocks.__dataclass_fields__}
    fields["query_count"] += blocks.query_start[last] - blocks.query_start[first]
    fields["query_count"] += blocks.query_count[last] - blocks.query_count[first]
    return QueryBlocks(**fields)
