"""Pass notes from function modes that alter a call to those above them."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any


class _Here(threading.local):
    depth = 0
    latest: tuple[Any, Any] | None = None


_here = _Here()


def run(function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> tuple[Any, Any]:
    """Run a function of torch; return its result and the note about it, or None."""
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
    """Attach a note to the result of a function, for `run`."""
    if _here.depth:
        _here.latest = (result, about)
