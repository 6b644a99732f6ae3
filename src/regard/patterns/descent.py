"""Find the key blocks of each query block, from coarse rectangles to fine ones."""

from dataclasses import dataclass

import torch
from jaxtyping import Int, Int8
from torch import Tensor

from regard.patterns.cover import Cover, Span
from regard.patterns.pattern import Pattern
from regard.patterns.range_extrema import RangeExtrema

KEY_BLOCK = 32
"""Keys come in multiples of this: small enough to trim, and whole vector registers."""

_FAN_OUT = 2


@dataclass(frozen=True)
class Runs:
    """Sorted runs of key blocks, one entry per run.

    Attributes:
        batch: the sequence of the batch.
        classes: the class of the lattice.
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


def descend(
    pattern: Pattern,
    queries: Int[Tensor, "classes query_rows"],
    keys: Int[Tensor, "classes key_rows"],
    block: int,
) -> Runs:
    """Find the runs of key blocks of each query block.

    Rectangles with cover NONE are dropped, those with ALL are recorded, those with SOME are split.
    The work grows with the number of runs, not with the area.

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
    extremes = None if ascending else RangeExtrema(queries.flatten(), queries.flatten())

    scale = 1
    while scale < max(num_rows, num_columns):
        scale *= _FAN_OUT
    batch = torch.arange(pattern.batch_size or 1, device="cpu").repeat_interleave(num_classes)
    classes = torch.arange(num_classes, device="cpu").repeat(pattern.batch_size or 1)
    row, column = torch.zeros_like(batch), torch.zeros_like(batch)
    found: list[tuple[Tensor, ...]] = []
    while True:
        first, last = _ends(row, scale * block, num_queries)
        if extremes is None:
            query = Span(queries[classes, first], queries[classes, last])
        else:
            query = Span(*extremes(classes * num_queries + first, classes * num_queries + last))
        first, last = _ends(column, scale * KEY_BLOCK, num_keys)
        key = Span(keys[classes, first], keys[classes, last])
        code = pattern.cover_spans(batch, query, key)

        settled = code == Cover.ALL if scale > 1 else code != Cover.NONE
        # A settled square of blocks becomes one run per query block.
        every_row = (row[settled][:, None] * scale + torch.arange(scale, device="cpu")).flatten()
        spread = [x[settled].repeat_interleave(scale) for x in (batch, classes, column, code)]
        inside = every_row < num_rows
        run = (spread[0], spread[1], every_row, spread[2] * scale, spread[3])
        length = torch.clamp_max(num_columns - run[3], scale)
        found.append(tuple(x[inside] for x in (*run[:4], length, run[4])))

        if scale == 1:
            break
        open_ = code == Cover.SOME
        batch, classes, row, column = (x[open_] for x in (batch, classes, row, column))
        scale //= _FAN_OUT
        row, column = (x[:, None, None] * _FAN_OUT for x in (row, column))
        step = torch.arange(_FAN_OUT, device="cpu")
        row = (row + step[:, None]).expand(-1, -1, _FAN_OUT).flatten()
        column = (column + step).expand(-1, _FAN_OUT, -1).flatten()
        inside = (row * scale < num_rows) & (column * scale < num_columns)
        batch, classes = (x.repeat_interleave(_FAN_OUT**2) for x in (batch, classes))
        batch, classes, row, column = (x[inside] for x in (batch, classes, row, column))

    runs = Runs(*(torch.cat(tensors) for tensors in zip(*found, strict=True)))
    name = (runs.batch * num_classes + runs.classes) * num_rows + runs.query_block
    order = torch.argsort(name * num_columns + runs.key_block)
    return Runs(*(getattr(runs, field)[order] for field in Runs.__dataclass_fields__))


def _ends(number: Tensor, size: int, most: int) -> tuple[Tensor, Tensor]:
    first = number * size
    return first, torch.clamp_max(first + size, most) - 1
