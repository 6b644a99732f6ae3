"""What becomes of a call that somebody below on the stack of function modes has altered."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any


class _Here(threading.local):
    depth = 0
    latest: tuple[Any, Any] | None = None


_here = _Here()


def run(function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> tuple[Any, Any]:
    """Run a function of torch.

    Returns:
        Its result, and what was noted about it; None if nothing was.
    """
    _here.depth += 1
    try:
        result = function(*arguments, **options)
        noted, _here.latest = _here.latest, None
    finally:
        _here.depth -= 1
    if noted is None or noted[0] is not result:
        return result, None
    note(*noted)
    return result, noted[1]


def note(result: Any, about: Any) -> None:
    """Tell whoever has called a function something about its result."""
    if _here.depth:
        _here.latest = (result, about)
