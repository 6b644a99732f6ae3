"""The content of patterns and biases, to be compared between ranks.

Digests depend on the names of classes and on what these store, so they are compared within one run
only, and never kept.
"""

import hashlib
import pickle
from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from types import BuiltinFunctionType, FunctionType
from typing import Any

from torch import Tensor, nn, uint8

from regard.patterns import Pattern
from regard.patterns.layout_cache import cached
from regard.positions import Bias

_MODULE = vars(nn.Module()).keys() - {"_parameters", "_buffers", "_modules"}
"""Attributes that all modules have, such as hooks."""

_PLAIN = bool | int | float | complex | str | bytes | None


def described(rule: Pattern | Bias | None) -> str:
    """Name a pattern or bias, with a digest of its parameters and tensors.

    Raises:
        TypeError: it has an attribute that can't be compared.
    """
    if rule is None:
        return "None"
    if isinstance(rule, Pattern):
        # Patterns don't change once used; a bias may learn.
        digest = cached(rule, "digest", lambda: _digest(rule))
    else:
        digest = _digest(rule)
    # Without a repr of its own, it is an address.
    is_named = isinstance(rule, Pattern) and type(rule).__repr__ is not object.__repr__
    return f"{rule if is_named else type(rule).__name__} ({digest})"


def _digest(rule: Pattern | Bias) -> str:
    try:
        return hashlib.sha256(_content(rule).encode()).hexdigest()[:16]
    except (pickle.PicklingError, AttributeError, RecursionError, TypeError) as error:
        raise TypeError(
            f"ranks can't compare their {type(rule).__name__}: {error or type(error).__name__}"
        ) from error


def _content(x: Any) -> str:
    """Return all values of an object as text, the same in every process."""
    kind = _name(type(x))
    if isinstance(x, Tensor):
        values = x.detach().cpu().contiguous().flatten().view(uint8).numpy()
        return f"{x.dtype}{list(x.shape)}{hashlib.sha256(values.data).hexdigest()}"
    if isinstance(x, type):
        return _name(x)
    if isinstance(x, FunctionType | BuiltinFunctionType | _PLAIN):
        # Functions by name; pickle refuses those that have none.
        return f"{kind}{pickle.dumps(x)}"
    if isinstance(x, Mapping):
        items = sorted(f"{_content(key)}: {_content(value)}" for key, value in x.items())
        return f"{kind}{items}"
    if isinstance(x, Set):
        return f"{kind}{sorted(map(_content, x))}"
    if isinstance(x, Sequence):
        return f"{kind}{list(map(_content, x))}"
    return f"{kind}{_content(_state(x))}"


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _state(x: Any) -> Any:
    """Return what pickle stores of an object, without attributes that are derived from others."""
    reduced = x.__reduce_ex__(4)
    if isinstance(reduced, str) or len(reduced) < 3 or not isinstance(reduced[2], dict):
        return reduced
    derived = {
        name
        for base in type(x).__mro__
        for name, value in vars(base).items()
        if isinstance(value, cached_property)
    }
    left_out = derived | (_MODULE if isinstance(x, nn.Module) else set())
    attributes = {name: value for name, value in reduced[2].items() if name not in left_out}
    return [*reduced[:2], attributes, *reduced[3:]]
