"""Query blocks and their keys."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.patterns.cover import Cover
from regard.patterns.descent import KEY_BLOCK, Runs

_MERGED_PAIRS = 1 << 22


@dataclass(frozen=True)
class Blocks:
    """Query blocks and their keys, in rows of the lattice; one entry per block.

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


def find_blocks(runs: Runs, block: int, num_queries: int, num_keys: int) -> Blocks:
    """Return the query blocks of the runs."""
    name = torch.stack([runs.batch, runs.classes, runs.query_block])
    begins = torch.ones(name.shape[1], dtype=torch.bool, device="cpu")
    begins[1:] = (name[:, 1:] != name[:, :-1]).any(dim=0)
    first = torch.nonzero(begins).flatten()
    end = torch.cat([first[1:], torch.tensor([len(begins)], device="cpu")])
    num_blocks = _summed(runs.length, first, end)
    start = runs.key_block[first]
    stop = runs.key_block[end - 1] + runs.length[end - 1]
    query_start = runs.query_block[first] * block
    return Blocks(
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
    total = torch.cat([torch.zeros(1, dtype=torch.long, device="cpu"), values.cumsum(0)])
    return total[end] - total[first]


def merge(blocks: Blocks) -> Blocks:
    """Merge neighbouring blocks with the same keys: one long call beats many short ones."""
    alike = torch.stack([blocks.batch, blocks.classes, blocks.key_start, blocks.key_count])
    same = torch.zeros_like(blocks.gaps)
    same[1:] = (alike[:, 1:] == alike[:, :-1]).all(dim=0)
    same[1:] &= blocks.query_start[1:] == blocks.query_start[:-1] + blocks.query_count[:-1]
    same[1:] &= (blocks.every[1:] == blocks.every[:-1]) & ~blocks.gaps[1:] & ~blocks.gaps[:-1]
    # Masks must stay small, so long stretches of masked blocks are split.
    number = torch.arange(len(same), device="cpu")
    begin = torch.cummax(torch.where(same, 0, number), dim=0).values
    most = torch.clamp_min(_MERGED_PAIRS // (blocks.query_count * blocks.key_count), 1)
    same &= blocks.every | ((number - begin) % most != 0)

    first = torch.nonzero(~same).flatten()
    last = torch.cat([first[1:], torch.tensor([len(same)], device="cpu")]) - 1
    fields = {name: getattr(blocks, name)[first] for name in Blocks.__dataclass_fields__}
    fields["query_count"] += blocks.query_start[last] - blocks.query_start[first]
    fields["query_count"] += blocks.query_count[last] - blocks.query_count[first]
    return Blocks(**fields)
