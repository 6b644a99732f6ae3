"""What a reduction is: rows in, a few numbers out, in any order and any number of parts."""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import UInt8
from torch import Tensor

from regard.matrix.derived import Derived
from regard.matrix.result import Result
from regard.matrix.source import Fact
from regard.matrix.tiles import Tile
from regard.matrix.view import Outline, View

State = TypeVar("State")
Found = TypeVar("Found", bound=Result, covariant=True)


@runtime_checkable
class Reduction(Protocol[State, Found]):
    """A statistic of an attention matrix, as a frozen dataclass of its parameters.

    It is a function of the weights in a view, of where their rows and columns stand and of who may
    look at whom. What was found so far is a state: `start` makes one, `update` adds a tile to it,
    `merge` joins two, `finish` makes the result. A tile has whole rows, so that rows may be dealt
    out to tiles, passes and machines in any way: the answer is the same.
    """

    facts: ClassVar[tuple[Fact, ...]]
    """What it will ask of each tile: it can be had more cheaply when the tile is made."""

    def start(self, view: View) -> State:
        """Return the state in which nothing of a view has been seen."""
        ...

    def update(self, state: State, tile: Tile) -> State:
        """Add a tile to a state, which may be changed in place; return it."""
        ...

    def merge(self, first: State, second: State) -> State:
        """Return what was seen in either of two states."""
        ...

    def finish(self, state: State) -> Found:
        """Return the result."""
        ...


AnyReduction = Reduction[Any, Result]


def is_reduction(what: object) -> bool:
    """Say whether something is a reduction; a class is none before it has its parameters."""
    return isinstance(what, Reduction) and not isinstance(what, type)


@dataclass
class Sums:
    """A state that adds up.

    Attributes:
        outline: what it is a state of.
        tensors: what has been summed up so far, [batch, heads, ...] each. Where "seen" is among
            them, [batch, heads, queries], it counts how often a row was seen, which is once.
    """

    outline: Outline
    tensors: dict[str, Tensor]

    def __getitem__(self, name: str) -> Tensor:
        """Return one of the tensors."""
        return self.tensors[name]


def merged(first: Sums, second: Sums) -> Sums:
    """Add two states up.

    Raises:
        ValueError: they are of different sizes, or have seen the same row where each has its place.
    """
    shapes = [{name: list(x.shape) for name, x in one.tensors.items()} for one in (first, second)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"states that are merged must have the same sizes, got {shapes}")
    tensors = {name: x + second[name].to(x.device) for name, x in first.tensors.items()}
    if "seen" in tensors:
        merged_rows(first.outline, first["seen"], second.outline, second["seen"])
    return Sums(first.outline, tensors)


def merged_rows(
    first: Outline, first_seen: Tensor, second: Outline, second_seen: Tensor
) -> UInt8[Tensor, "batch heads queries"]:
    """Return which rows were seen in either of two states.

    Raises:
        ValueError: a row was seen in both, or they are of matrices of different sizes.
    """
    if first.sizes != second.sizes:
        raise ValueError(
            "states that are merged must have the same sizes, "
            f"got {list(first.sizes)} and {list(second.sizes)}"
        )
    seen = first_seen + second_seen.to(first_seen.device)
    if bool((seen > 1).any()):
        raise ValueError(
            "states that are merged must have seen different rows of one matrix: "
            "this reduction has a place for each row"
        )
    return seen


def check_weights(view: View, name: str) -> None:
    """Raise ValueError unless a matrix has weights, not numbers derived from them."""
    if isinstance(view.source, Derived):
        raise ValueError(f"{name} needs weights, not effects or norms: use matrix.weights")


def zeros(view: View, *sizes: int, dtype: torch.dtype | None = None) -> Tensor:
    """Return zeros [batch, heads, *sizes] to start with.

    Args:
        view: what is to be summed up.
        sizes: the sizes of further axes.
        dtype: the type; by default the one for sums over many tiles, float64 where the device has
            it.
    """
    device = view.source.device
    if dtype is None:
        dtype = torch.float32 if device.type == "mps" else torch.float64
    return torch.zeros(*view.sizes[:2], *sizes, dtype=dtype, device=device)


def rows_of_zeros(view: View, **sizes: tuple[int, ...]) -> Sums:
    """Return a state with a place for each row.

    Args:
        view: what is to be summed up.
        sizes: the sizes of the axes after [batch, heads, queries], by the name of the tensor.
    """
    queries, dtype = view.sizes[2], view.source.dtype
    tensors = {name: zeros(view, queries, *more, dtype=dtype) for name, more in sizes.items()}
    tensors["seen"] = zeros(view, queries, dtype=torch.uint8)
    return Sums(view.outline, tensors)
