"""Remembering what was made from a pattern: the layers and steps of a model ask for the same."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, TypeVar

from regard.patterns.pattern import Pattern

Made = TypeVar("Made")

_MOST = 64
_made: OrderedDict[tuple[Pattern, Hashable], Any] = OrderedDict()
_lock = Lock()


def remembered(pattern: Pattern, name: Hashable, make: Callable[[], Made]) -> Made:
    """Return what was made from a pattern under a name, or make it.

    For patterns that compare by value the latest 64 things are kept. Patterns that hold tensors
    compare by identity; what was made from them is kept on the pattern and goes when it goes.

    Args:
        pattern: the pattern.
        name: tells apart what is made from one pattern.
        make: makes it.
    """
    if any(type(leaf).__eq__ is object.__eq__ for leaf in pattern.leaves()):
        own: dict[Hashable, Any] = vars(pattern).setdefault("_made", {})
        if name not in own:
            own[name] = make()
        return own[name]
    key = (pattern, name)
    with _lock:
        if key in _made:
            _made.move_to_end(key)
            return _made[key]
    made = make()
    with _lock:
        _made[key] = made
        while len(_made) > _MOST:
            _made.popitem(last=False)
    return made
