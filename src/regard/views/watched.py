"""What a picture needs to know of a call of attention, wherever it was seen."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from regard.matrix import AttentionMatrix

Stack = Literal["encoder", "decoder", "cross"]

_NUMBER = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")


@runtime_checkable
class Watched(Protocol):
    """A call of attention, such as those that `regard.watch` sees.

    Attributes:
        module: the path of the module that made it.
        looks: whether it looked at its own sequence, "self", or at another, "cross".
    """

    module: str
    looks: Any

    @property
    def matrix(self) -> AttentionMatrix:
        """The attention matrix, [batch, heads, queries, keys]."""
        ...


def layer_in(path: str) -> str:
    """Return the number of the layer in the path of a module, "" if it has none.

    >>> layer_in("model.layers.5.self_attn")
    '5'
    """
    found = _NUMBER.search(path)
    return found[1] if found else ""


def layer_of(what: Any) -> str:
    """Return the number of the layer that made a call, "" if its module has none."""
    return layer_in(getattr(what, "module", ""))


def stack_of(module: str, looks: str) -> Stack:
    """Return which of its three stacks of an encoder–decoder a call belongs to.

    Args:
        module: the path of the module that made it.
        looks: whether it looked at its own sequence, "self", or at another, "cross".

    >>> stack_of("model.encoder.layers.0.self_attn", "self")
    'encoder'
    >>> stack_of("model.decoder.layers.0.encoder_attn", "cross")
    'cross'
    """
    if looks == "cross":
        return "cross"
    return "encoder" if "encoder" in module.split(".") else "decoder"


def one_sequence(what: AttentionMatrix | Watched, batch: int | None = None) -> AttentionMatrix:
    """Return the matrix of one sequence: [heads, queries, keys] or [queries, keys].

    Args:
        what: a matrix with or without these axes, or a call.
        batch: which sequence; needed if there are several.

    Raises:
        TypeError: it is neither a matrix nor a call.
        ValueError: there are several sequences and none was chosen.
        IndexError: there is no such sequence.
    """
    matrix = what if isinstance(what, AttentionMatrix) else _matrix_of(what)
    if "batch" not in matrix.axes:
        return matrix
    if batch is None and matrix.shape[0] != 1:
        raise ValueError(
            f"a picture shows one sequence and there are {matrix.shape[0]}: choose one, as batch=0 "
            "or matrix[0]"
        )
    return matrix[batch or 0]


def one_head(
    what: AttentionMatrix | Watched, head: int | None = None, batch: int | None = None
) -> AttentionMatrix:
    """Return the matrix of one head of one sequence, [queries, keys].

    Raises:
        ValueError: there are several heads or sequences and none was chosen, or a head was chosen
            of a matrix that is one.
    """
    matrix = one_sequence(what, batch)
    if "heads" not in matrix.axes:
        if head is not None:
            raise ValueError(f"this matrix is of one head already, got head={head}")
        return matrix
    if head is None and matrix.shape[0] != 1:
        raise ValueError(
            f"this picture shows one head and there are {matrix.shape[0]}: choose one, as head=0 "
            "or matrix[0, 5]"
        )
    return matrix[head or 0]


def head_or_mean(
    what: AttentionMatrix | Watched, head: int | None = None, batch: int | None = None
) -> AttentionMatrix:
    """Return the matrix of one head, [queries, keys], or of all of them if none was chosen."""
    matrix = one_sequence(what, batch)
    several = "heads" in matrix.axes and head is None and matrix.shape[0] != 1
    return matrix if several else one_head(matrix, head)


def _matrix_of(what: Any) -> AttentionMatrix:
    if isinstance(what, Sequence):
        raise TypeError(
            f"this picture shows one call of attention, got {len(what)}: choose one, as seen[5]"
        )
    return checked(what).matrix


def checked(what: Any) -> Watched:
    """Return a call, or raise TypeError if it is none."""
    if not isinstance(what, Watched):
        raise TypeError(
            "expected an AttentionMatrix or a call that regard.watch has seen, got "
            f"{type(what).__name__}; AttentionMatrix.from_weights(weights) takes weights that are "
            "written down"
        )
    return what


@dataclass
class Picked:
    """A part of a call; see `Watched`."""

    matrix: AttentionMatrix
    module: str
    looks: Any


@dataclass
class Alone:
    """A matrix of which it is not known who computed it; see `Watched`."""

    matrix: AttentionMatrix
    module: str = "attention"
    looks: str = "self"


def listed(
    calls: Sequence[Watched | AttentionMatrix] | Watched | AttentionMatrix,
) -> list[Watched]:
    """Return calls, one or several, as a list; matrices are calls of nobody."""
    several = calls if isinstance(calls, Sequence) else [calls]
    return [Alone(one) if isinstance(one, AttentionMatrix) else checked(one) for one in several]
