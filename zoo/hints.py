"""What can't be told by the names of settings and arguments, for the odd ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Hint:
    """What is special about a type.

    Attributes:
        config: settings, by name; those of a configuration inside by a dotted path, "*." for all.
        model: the name of the class, if it is another one than the usual.
        inputs: arguments, or functions of an `InputMaker` that return them.
        omit: arguments to leave out.
        gain: how strong the weights are; see `strengthen`.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    omit: tuple[str, ...] = ()
    gain: float = 1.5


HINTS: dict[str, Hint] = {}
