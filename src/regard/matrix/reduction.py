"""Reductions: statistics of rows, in any order and any number of parts; and their results.

state = reduction.start(view)
state = reduction.update(state, tile)           for each tile, on any machine
state = reduction.merge(state, other_state)
result = reduction.finish(state)                tensors with named axes
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray
from torch import Tensor

from regard.matrix.derived import Weighted
from regard.matrix.source import Fact
from regard.matrix.tiles import Tile
from regard.matrix.view import AXES, Labels, Outline, View

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Tensors with named axes, as in the annotations.

    `*heads` stands for the axes "batch" and "heads", unless they were indexed by a number:
    `A[0, 3].entropy()` has only the axis "queries".

    Attributes:
        labels: the labels of each axis.
    """

    labels: Labels

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def axes(self, name: str) -> tuple[str, ...]:
        """Return the names of the axes of a tensor."""
        (annotation,) = (cast(Any, field.type) for field in fields(self) if field.name == name)
        axes = tuple(annotation.dim_str.split())
        if axes[0] != "*heads":
            return axes
        return (*(axis for axis in ("batch", "heads") if axis in self.labels), *axes[1:])

    def numpy(self) -> dict[str, NDArray[Any]]:
        """Return the tensors as arrays, by name."""
        return {name: values.cpu().numpy() for name, values in self.tensors.items()}

    def frame(self, *names: str) -> "pandas.DataFrame":
        """Return a DataFrame with a row for each element, and a column for each axis and tensor.

        Args:
            names: the tensors. By default the first of those with the most axes, and all others
                without further axes, repeated if they have fewer.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError('DataFrames need pandas: pip install "regard[frame]"') from error

        # 1. The tensors that fit, and the axes of the rows.
        axes = max((self.axes(name) for name in names or self.tensors), key=len)
        fits = [name for name in names or self.tensors if set(self.axes(name)) <= set(axes)]
        if names and len(fits) < len(names):
            raise ValueError(f"names must have the same axes, got {', '.join(names)}")
        sizes = [len(self.labels[axis]) for axis in axes]

        # 2. A column of labels for each axis.
        columns: dict[str, Any] = {}
        for place, axis in enumerate(axes):
            shape = [-1 if number == place else 1 for number in range(len(axes))]
            labels = np.asarray(self.labels[axis]).reshape(shape)
            columns[axis] = np.broadcast_to(labels, sizes).ravel()

        # 3. A column of numbers for each tensor.
        arrays = self.numpy()
        for name in fits:
            own_axes = self.axes(name)
            shape = [len(self.labels[axis]) if axis in own_axes else 1 for axis in axes]
            columns[name] = np.broadcast_to(arrays[name].reshape(shape), sizes).ravel()
        return pandas.DataFrame(columns)

    def __repr__(self) -> str:
        sizes = {
            name: " × ".join(f"{len(self.labels[axis])} {axis}" for axis in self.axes(name))
            for name in self.tensors
        }
        name_width, size_width = (max(map(len, texts)) for texts in (sizes, sizes.values()))
        lines = [
            f"  {name:<{name_width}}  {sizes[name]:<{size_width}}  {_described(values)}"
            for name, values in self.tensors.items()
        ]
        return "\n".join([type(self).__name__, *lines])


State = TypeVar("State")
ResultType = TypeVar("ResultType", bound=Result, covariant=True)


@runtime_checkable
class Reduction(Protocol[State, ResultType]):
    """A statistic of an attention matrix, as a frozen dataclass of its parameters.

    It is a function of the weights of a view, their positions and the pattern. Its state is made by
    `start`, updated with each tile by `update`, joined with another by `merge`, and turned into the
    result by `finish`. A tile has whole rows; the result does not depend on how rows are
    distributed over tiles, passes and machines.
    """

    facts: ClassVar[tuple[Fact, ...]]
    """The statistics that it reads from each tile, which are cheaper to compute with the tile."""

    def start(self, view: View) -> State:
        """Return the initial state for a view."""
        ...

    def update(self, state: State, tile: Tile) -> State:
        """Add a tile to a state, which may be changed in place; return it."""
        ...

    def merge(self, first: State, second: State) -> State:
        """Return the union of two states."""
        ...

    def finish(self, state: State) -> ResultType:
        """Return the result."""
        ...


AnyReduction = Reduction[Any, Result]


def is_reduction(candidate: object) -> bool:
    """Return whether an object is a reduction: an instance, not a class."""
    return isinstance(candidate, Reduction) and not isinstance(candidate, type)


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
    states = (first, second)
    shapes = [{name: list(x.shape) for name, x in state.tensors.items()} for state in states]
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
        for in_first, in_second in zip(first.places[axis], second.places[axis], strict=True):
            if in_first != in_second:
                raise ValueError(
                    f"states that are merged must be of the same {axis}, got {in_first} in one and "
                    f"{in_second} in the same place of the other"
                )


def require_weights(view: View, name: str) -> None:
    """Raise ValueError unless a matrix has weights, not numbers derived from them."""
    if isinstance(view.source, Weighted):
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
    tensors = {name: zeros(view, queries, *size, dtype=dtype) for name, size in sizes.items()}
    tensors["seen"] = zeros(view, queries, dtype=torch.uint8)
    return Sums(view.outline, tensors)


def _described(values: Tensor) -> str:
    if not values.numel():
        return "empty"
    if values.numel() == 1:
        return f"{values.item():.4g}"
    if not values.is_floating_point():
        return f"{values.min().item()} to {values.max().item()}"
    known = values[~values.isnan()].double()
    if not known.numel():
        return "all NaN"
    mean = known.mean().item()
    missing = f", {values.numel() - known.numel()} NaN" if known.numel() < values.numel() else ""
    return f"{known.min().item():.4g} to {known.max().item():.4g}, mean {mean:.4g}{missing}"
