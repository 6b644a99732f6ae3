"""The protocol of reductions: statistics of rows, in any order and any number of parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import UInt8
from torch import Tensor

from regard.matrix.derived import Derived
from regard.matrix.result import Result
from regard.matrix.source import Fact
from regard.matrix.tiles import Tile
from regard.matrix.view import AXES, Outline, View

State = TypeVar("State")
Found = TypeVar("Found", bound=Result, covariant=True)


@runtime_checkable
class Reduction(Protocol[State, Found]):
    """A statistic of an attention matrix, as a frozen dataclass of its parameters.

    It is a function of the weights of a view, their positions and the pattern. Its state is made by
    `start`, updated with each tile by `update`, joined with another by `merge`, and turned into the
    result by `finish`. A tile has whole rows; the result does not depend on how rows are
    distributed over tiles, passes and machines.
    """

    facts: ClassVar[tuple[Fact, ...]]
    """The facts that it reads from each tile, which are cheaper to compute with the tile."""

    def start(self, view: View) -> State:
        """Return the initial state for a view."""
        ...

    def update(self, state: State, tile: Tile) -> State:
        """Add a tile to a state, which may be changed in place; return it."""
        ...

    def merge(self, first: State, second: State) -> State:
        """Return the union of two states."""
        ...

    def finish(self, state: State) -> Found:
        """Return the result."""
        ...


AnyReduction = Reduction[Any, Result]


def is_reduction(what: object) -> bool:
    """Return whether an object is a reduction: an instance, not a class."""
    return isinstance(what, Reduction) and not isinstance(what, type)


@dataclass
class Sums:
    """A state of sums.

    Attributes:
        outline: the outline of the view.
        tensors: the sums, [batch, heads, ...] each. "seen", if present, counts how often each row
            was added, [batch, heads, queries], which must be at most once.
        of_keys: whether the sums are those of the keys of the view, one by one.
    """

    outline: Outline
    tensors: dict[str, Tensor]
    of_keys: bool = False

    def __getitem__(self, name: str) -> Tensor:
        """Return one of the tensors."""
        return self.tensors[name]


def merged(first: Sums, second: Sums) -> Sums:
    """Add two states.

    Raises:
        ValueError: they are of different sizes or heads, or of different keys where each key has a
            place, or have seen the same row where each row has one.
    """
    shapes = [{name: list(x.shape) for name, x in one.tensors.items()} for one in (first, second)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"states that are merged must have the same sizes, got {shapes}")
    # Sequences that were indexed by a number may be documents, over which the sums are.
    axes = [axis for axis in first.outline.axes if axis == "batch"] + ["heads"]
    _check_places(first.outline, second.outline, [*axes, "keys"] if first.of_keys else axes)
    tensors = {name: x + second[name].to(x.device) for name, x in first.tensors.items()}
    if "seen" in tensors:
        merged_rows(first.outline, first["seen"], second.outline, second["seen"])
    return Sums(first.outline, tensors, first.of_keys)


def merged_rows(
    first: Outline, first_seen: Tensor, second: Outline, second_seen: Tensor
) -> UInt8[Tensor, "batch heads queries"]:
    """Return which rows were seen in either of two states.

    Raises:
        ValueError: a row was seen in both, or they are of matrices of different sizes, or of
            different parts of a matrix.
    """
    if first.sizes != second.sizes:
        raise ValueError(
            "states that are merged must have the same sizes, "
            f"got {list(first.sizes)} and {list(second.sizes)}"
        )
    _check_places(first, second, AXES)
    seen = first_seen + second_seen.to(first_seen.device)
    if bool((seen > 1).any()):
        raise ValueError(
            "states that are merged must have seen different rows of one matrix: "
            "this reduction has a place for each row"
        )
    return seen


def _check_places(first: Outline, second: Outline, axes: Sequence[str]) -> None:
    """Raise ValueError unless some axes of two views have the same indices."""
    for axis in axes:
        for one, other in zip(first.places[axis], second.places[axis], strict=True):
            if one != other:
                raise ValueError(
                    f"states that are merged must be of the same {axis}, got {one} in one and "
                    f"{other} in the same place of the other"
                )


def check_weights(view: View, name: str) -> None:
    """Raise ValueError unless a matrix has weights, not numbers derived from them."""
    if isinstance(view.source, Derived):
        raise ValueError(f"{name} needs weights, not effects or norms: use matrix.weights")


def zeros(view: View, *sizes: int, dtype: torch.dtype | None = None) -> Tensor:
    """Return zeros [batch, heads, *sizes].

    Args:
        view: the view.
        sizes: the sizes of further axes.
        dtype: the dtype; by default that of sums over many tiles, float64 if the device has it.
    """
    device = view.source.device
    if dtype is None:
        dtype = torch.float32 if device.type == "mps" else torch.float64
    return torch.zeros(*view.sizes[:2], *sizes, dtype=dtype, device=device)


def rows_of_zeros(view: View, **sizes: tuple[int, ...]) -> Sums:
    """Return a state with an entry for each row.

    Args:
        view: the view.
        sizes: the sizes of the axes after [batch, heads, queries], by the name of the tensor.
    """
    queries, dtype = view.sizes[2], view.source.dtype
    tensors = {name: zeros(view, queries, *more, dtype=dtype) for name, more in sizes.items()}
    tensors["seen"] = zeros(view, queries, dtype=torch.uint8)
    return Sums(view.outline, tensors)
