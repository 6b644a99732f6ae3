"""Remembering what was made from a pattern: the layers and steps of a model ask for the same."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, TypeVar

from regard.patterns.pattern import Pattern

Made = TypeVar("Made")

_MOST = 64
_made: OrderedDict[Hashable, Any] = OrderedDict()
_lock = Lock()


def remembered(pattern: Pattern, name: Hashable, make: Callable[[], Made]) -> Made:
    """Return what was made from a pattern under a name, or make it.

    The latest 64 things are kept: of all patterns that compare by value together, and of each other
    pattern, which holds tensors, with the pattern itself, so that they go when it goes.

    Args:
        pattern: the pattern.
        name: tells apart what is made from one pattern.
        make: makes it.
    """
    shared = True
    for leaf in pattern.leaves():
        shared = shared and _compares_by_value(leaf)
        # From here on it can't be changed.
        vars(leaf).setdefault("_made", OrderedDict())
    known = _made if shared else vars(pattern).setdefault("_made", OrderedDict())
    key = (pattern, name) if shared else name
    with _lock:
        if key in known:
            known.move_to_end(key)
            return known[key]
    made = make()
    with _lock:
        known[key] = made
        while len(known) > _MOST:
            known.popitem(last=False)
    return made


def _compares_by_value(leaf: Pattern) -> bool:
    kind = type(leaf)
    return kind.__eq__ is not object.__eq__ and kind.__hash__ is not None  # pyright: ignore[reportUnnecessaryComparison]
