"""Progress bars."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")

SOON = 2.0
"""Seconds until a progress bar appears."""


def progressing(
    items: Iterable[Item],
    about: str,
    total: int,
    progress: bool | None,
    size: Callable[[Item], int] = lambda item: 1,
) -> Iterator[Item]:
    """Yield items, with a progress bar.

    Args:
        items: the items.
        about: the label of the bar.
        total: the total size of all items.
        progress: whether to show a bar. By default, None, in terminals and notebooks after two
            seconds, if rich is installed.
        size: the size of an item.
    """
    if progress is False:
        yield from items
        return

    # 1. Without a bar, until it has taken long enough for one.
    remaining = iter(items)
    started, done = time.monotonic(), 0
    for item in remaining:
        yield item
        done += size(item)
        if progress or time.monotonic() - started > SOON:
            break
    else:
        return

    # 2. With a bar, if one can be shown.
    bar = _bar(always=progress is True)
    if bar is None:
        yield from remaining
        return
    with bar:
        task = bar.add_task(about, total=total, completed=done)
        for item in remaining:
            yield item
            bar.advance(task, size(item))
        bar.update(task, completed=total)


def _bar(*, always: bool) -> Any:
    """Return a progress bar, or None without a terminal or notebook."""
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
