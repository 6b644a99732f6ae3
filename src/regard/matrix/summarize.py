"""Several reductions in one pass over a matrix."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from regard.matrix.reduction import AnyReduction
from regard.matrix.result import Result
from regard.matrix.source import Fact
from regard.matrix.tiles import BUDGET, Tile, tiles
from regard.matrix.view import View

_SOON = 2.0
"""A progress bar is shown for what has taken so many seconds and isn't finished."""


def accumulate(
    view: View,
    reductions: Sequence[AnyReduction],
    *,
    budget: int = BUDGET,
    progress: bool | None = None,
) -> list[Any]:
    """Return the state of each reduction after all rows of a view, to be merged or finished.

    Args:
        view: what to reduce.
        reductions: any number of them; all are fed in one pass.
        budget: how many bytes may be held at once, beside the states.
        progress: whether to show a progress bar. By default one is shown in terminals and notebooks
            for what takes longer than two seconds, if rich is installed.
    """
    with torch.no_grad():
        states = [reduction.start(view) for reduction in reductions]
        facts: set[Fact] = {fact for reduction in reductions for fact in reduction.facts}
        found = tiles(view, facts, budget)
        if progress is not False:
            found = _with_progress(found, view, always=progress is True)
        for tile in found:
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
    pairs = zip(reductions, states, strict=True)
    return tuple(reduction.finish(state) for reduction, state in pairs)


def _with_progress(found: Iterator[Tile], view: View, *, always: bool) -> Iterator[Tile]:
    """Yield the tiles, and show how far they are if that takes long."""
    started = time.monotonic()
    done, total = 0, view.sizes[0] * view.sizes[1] * view.sizes[2]
    for tile in found:
        yield tile
        done += _rows(tile)
        if always or time.monotonic() - started > _SOON:
            break
    else:
        return
    progress = _bar(always)
    if progress is None:
        yield from found
        return
    with progress:
        task = progress.add_task("rows of attention", total=total, completed=done)
        for tile in found:
            yield tile
            progress.advance(task, _rows(tile))
        progress.update(task, completed=total)


def _rows(tile: Tile) -> int:
    batch, heads, rows, _ = tile.weights.shape
    return batch * heads * rows


def _bar(always: bool) -> Any:
    """Return a progress bar, or None where nobody would see one."""
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError as error:
        if always:
            raise ImportError(
                'a progress bar needs rich: pip install "regard[progress]"'
            ) from error
        return None
    console = Console(file=sys.stderr)
    if not always and not (console.is_terminal or console.is_jupyter):
        return None
    return Progress(console=console, transient=console.is_terminal)
