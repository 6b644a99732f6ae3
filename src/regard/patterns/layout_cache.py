"""A cache of layouts, masks and steps, shared by the layers and steps of a model."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, TypeVar

import torch

from regard.internals import in_dispatch_mode
from regard.patterns.pattern import Pattern, Remapped

Made = TypeVar("Made")

_MISSING: Any = object()
_MAX_CACHED = 64
_made: OrderedDict[Hashable, Any] = OrderedDict()
_lock = Lock()


def cached(pattern: Pattern, name: Hashable, make: Callable[[], Made]) -> Made:
    """Return the cached value of a pattern and name, or make it.

    Each pattern caches its latest 64 values, which are freed with it; another 64 are shared by all
    patterns that compare by value.

    Args:
        pattern: the pattern.
        name: all that the value depends on besides the pattern.
        make: makes the value.
    """
    if in_dispatch_mode():
        # Under a dispatch mode tensors may be fake; don't cache them.
        return make()

    values: OrderedDict[Hashable, Any] | None = vars(pattern).get("_made")
    if values is None:
        for part in (pattern, *pattern.leaves()):
            # Makes the pattern immutable.
            vars(part).setdefault("_made", OrderedDict())
        values = vars(pattern)["_made"]
        assert values is not None

    value = values.get(name, _MISSING)
    if value is _MISSING:
        # Inference tensors could not be used with autograd.
        with torch.inference_mode(False):
            value = _shared(pattern, name, make)
    with _lock:
        _keep(values, name, value)
    return value


def _shared(pattern: Pattern, name: Hashable, make: Callable[[], Made]) -> Made:
    """Return the cached value of an equal pattern, or make it."""
    if not all(map(compares_by_value, pattern.leaves())):
        return make()
    key = (pattern, name)
    with _lock:
        value = _made.get(key, _MISSING)
    if value is _MISSING:
        # Without the lock: it takes long, and may ask for other cached values.
        value = make()
    with _lock:
        _keep(_made, key, value)
    return value


def _keep(values: OrderedDict[Hashable, Any], name: Hashable, value: object) -> None:
    """Cache a value as the latest, and evict the oldest."""
    values[name] = value
    values.move_to_end(name)
    while len(values) > _MAX_CACHED:
        values.popitem(last=False)


def compares_by_value(leaf: Pattern) -> bool:
    """Return whether equal patterns of this type share cached values."""
    if isinstance(leaf, Remapped):
        return compares_by_value(leaf.pattern)
    kind = type(leaf)
    return kind.__eq__ is not object.__eq__ and kind.__hash__ is not None  # pyright: ignore[reportUnnecessaryComparison]
