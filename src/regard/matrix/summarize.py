"""Several reductions in one pass over a matrix."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch

from regard.matrix.fused import fused_states
from regard.matrix.reduction import AnyReduction, Result, is_reduction
from regard.matrix.sharded import merged_over_ranks, rows_here
from regard.matrix.source import Fact
from regard.matrix.tiles import BUDGET, Tile, tiles_of_rows
from regard.matrix.view import View
from regard.progress import progressing


def accumulate(
    view: View,
    reductions: Sequence[AnyReduction],
    *,
    budget: int = BUDGET,
    progress: bool | None = None,
) -> list[Any]:
    """Return the state of each reduction after all rows of a view, to be merged or finished.

    Of a sequence that several ranks share, these are the rows of this one.

    Args:
        view: the view.
        reductions: the reductions, computed in one pass.
        budget: maximum memory in bytes, without the states.
        progress: whether to show a progress bar. By default in terminals and notebooks after two
            seconds, if rich is installed.

    Raises:
        TypeError: one of them is not a reduction, or a class instead of an instance.
    """
    for reduction in reductions:
        _check(reduction)
    with torch.no_grad(), torch.autocast(view.source.device.type, enabled=False):
        states = fused_states(view, reductions, budget, progress)
        if states is not None:
            return states
        states = [reduction.start(view) for reduction in reductions]
        facts: set[Fact] = {fact for reduction in reductions for fact in reduction.facts}
        runs = (tiles_of_rows(view, rows, facts, budget) for rows in rows_here(view))
        tiles = chain.from_iterable(runs)
        num_rows = view.sizes[0] * view.sizes[1] * view.sizes[2]
        for tile in progressing(tiles, "rows of attention", num_rows, progress, _num_rows):
            for number, reduction in enumerate(reductions):
                states[number] = reduction.update(states[number], tile)
    return states


def summarize(
    view: View,
    reductions: Sequence[AnyReduction],
    *,
    budget: int = BUDGET,
    progress: bool | None = None,
) -> tuple[Result, ...]:
    """Return the result of each reduction; arguments as for `accumulate`."""
    states = accumulate(view, reductions, budget=budget, progress=progress)
    pairs = zip(reductions, merged_over_ranks(view, reductions, states), strict=True)
    return tuple(reduction.finish(state) for reduction, state in pairs)


def _check(reduction: object) -> None:
    if not is_reduction(reduction):
        is_class = isinstance(reduction, type)
        got = f"the class {reduction.__name__}" if is_class else type(reduction).__name__
        raise TypeError(f"reductions must be instances such as Entropy() or Pool(512), got {got}")


def _num_rows(tile: Tile) -> int:
    batch, heads, rows, _ = tile.shape
    return batch * heads * rows
