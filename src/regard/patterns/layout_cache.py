"""Remembering what was made from a pattern: the layers and steps of a model ask for the same."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, TypeVar

import torch

from regard.patterns.pattern import Pattern

Made = TypeVar("Made")

_MISSING: Any = object()
_MOST = 64
_made: OrderedDict[Hashable, Any] = OrderedDict()
_lock = Lock()


def cached(pattern: Pattern, name: Hashable, make: Callable[[], Made]) -> Made:
    """Return what was made from a pattern under a name, or make it.

    The latest 64 things are kept: with each pattern itself, so that they go when it goes, and once
    more of all patterns that compare by value together.

    Args:
        pattern: the pattern.
        name: tells apart what is made from one pattern.
        make: makes it.
    """
    if torch._C._len_torch_dispatch_stack():  # pyright: ignore[reportPrivateUsage]
        # Under a mode, tensors may be fakes, which are of no use to anybody else.
        return make()
    mine: OrderedDict[Hashable, Any] | None = vars(pattern).get("_made")
    if mine is None:
        mine = OrderedDict()
        for part in (pattern, *pattern.leaves()):
            # From here on it can't be changed.
            vars(part).setdefault("_made", OrderedDict())
        mine = vars(pattern)["_made"]
        assert mine is not None
    found = mine.get(name, _MISSING)
    if found is _MISSING:
        # Outside of inference mode, so that it can be used where gradients flow.
        with torch.inference_mode(False):
            found = _shared(pattern, name, make)
    with _lock:
        _keep(mine, name, found)
    return found


def _shared(pattern: Pattern, name: Hashable, make: Callable[[], Made]) -> Made:
    """Return what was made from an equal pattern, or make it."""
    if not all(map(compares_by_value, pattern.leaves())):
        return make()
    key = (pattern, name)
    with _lock:
        found = _made.get(key, _MISSING)
    if found is _MISSING:
        found = make()
    with _lock:
        _keep(_made, key, found)
    return found


def _keep(known: OrderedDict[Hashable, Any], name: Hashable, made: object) -> None:
    """Keep something as the latest, and let the oldest go."""
    known[name] = made
    known.move_to_end(name)
    while len(known) > _MOST:
        known.popitem(last=False)


def compares_by_value(leaf: Pattern) -> bool:
    """Say whether equal patterns of a kind are the same to memory."""
    kind = type(leaf)
    return kind.__eq__ is not object.__eq__ and kind.__hash__ is not None  # pyright: ignore[reportUnnecessaryComparison]
