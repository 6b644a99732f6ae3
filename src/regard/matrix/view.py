"""A part of an attention matrix: sequences, heads, rows and columns."""

from dataclasses import dataclass, replace
from operator import index
from types import EllipsisType

import torch
from torch import Tensor

from regard.matrix.source import Index, Source, as_tensor
from regard.patterns import Pattern

AXES: tuple[str, ...] = ("batch", "heads", "queries", "keys")

Places = range | list[int] | list[float] | list[str]
"""The labels of an axis."""

Labels = dict[str, Places]
"""The labels of each axis."""


@dataclass(frozen=True, eq=False)
class View:
    """A part of an attention matrix, not computed.

    Attributes:
        source: the source of its numbers.
        batch: the sequences, as indices of the source.
        heads: the heads.
        queries: the rows.
        keys: the columns, ascending.
        axes: the names of its axes, without those that were indexed by a number.
        first_head: number of the source's first head; not 0 where other processes have those
            before it.
    """

    source: Source
    batch: range
    heads: range
    queries: Index
    keys: Index
    axes: tuple[str, ...] = AXES
    first_head: int = 0

    @classmethod
    def whole(cls, source: Source) -> "View":
        """Return all of a source."""
        batch, heads, queries, keys = (range(size) for size in source.shape)
        return cls(source, batch, heads, queries, keys)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Batch, heads, queries and keys, including those that were indexed by a number."""
        return len(self.batch), len(self.heads), len(self.queries), len(self.keys)

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each of its axes."""
        sizes = dict(zip(AXES, self.sizes, strict=True))
        return tuple(sizes[axis] for axis in self.axes)

    @property
    def outline(self) -> "Outline":
        """The same without a source."""
        first, heads = self.first_head, self.heads
        head_numbers = range(heads.start + first, heads.stop + first, heads.step)
        places = (self.batch, head_numbers, self.queries, self.keys)
        labels: Labels = {
            axis: indices if isinstance(indices, range) else indices.tolist()
            for axis, indices in zip(AXES, places, strict=True)
        }
        return Outline(labels, self.axes, self.source.dtype, self.source.signed)

    @property
    def has_all_keys(self) -> bool:
        """Whether all keys of the source are in it."""
        return self.keys == range(self.source.shape[3]) if isinstance(self.keys, range) else False

    def columns(self, keys: Tensor) -> Tensor:
        """Convert keys of the source to columns of the view; −1 stays −1."""
        places = torch.searchsorted(as_tensor(self.keys).to(keys.device), keys.contiguous())
        return places.masked_fill(keys < 0, -1)

    def check(self, pattern: Pattern) -> None:
        """Raise ValueError if a pattern does not fit the view."""
        if 0 not in self.sizes:
            queries = self.source.positions(self.queries)
            positions = range(int(queries.min()), int(queries.max()) + 1)
            pattern.check(self.source.shape[0], positions, self.source.shape[3])

    def pick(self, indices: object) -> "View":
        """Index the axes with ints, slices and an ellipsis.

        Raises:
            TypeError: an index is something else.
            IndexError: there are too many, or one is out of range.
        """
        items = list(indices) if isinstance(indices, tuple) else [indices]
        for item in items:
            _check_kind(item)
        ellipses = [place for place, item in enumerate(items) if isinstance(item, EllipsisType)]
        if len(ellipses) > 1 or len(items) - len(ellipses) > len(self.axes):
            raise IndexError(
                f"an attention matrix with axes [{', '.join(self.axes)}] takes up to "
                f"{len(self.axes)} indices and one ellipsis, got {len(items)}"
            )

        if ellipses:
            missing = len(self.axes) - len(items) + 1
            items[ellipses[0] : ellipses[0] + 1] = [slice(None)] * missing
        picked = self
        for axis, item in zip(self.axes, items, strict=False):
            picked = picked._picked(axis, item)
        return picked

    def _picked(self, axis: str, item: object) -> "View":
        places: Index = getattr(self, axis)
        if isinstance(item, slice):
            if item.step is not None and index(item.step) < 1:
                raise ValueError(f"the step of a slice must be at least 1, got {item.step}")
            return replace(self, **{axis: places[item]})

        number, size = index(item), len(places)  # pyright: ignore[reportArgumentType]
        if not -size <= number < size:
            words, hint = axis, ""
            if axis == "batch":
                words, hint = "in the batch", f"; the axes are [{', '.join(self.axes)}]"
            raise IndexError(f"there are {size} {words}, counted from 0, got index {number}{hint}")
        place = places[number % size : number % size + 1]
        axes = tuple(name for name in self.axes if name != axis)
        return replace(self, **{axis: place, "axes": axes})

    def listed(self, axis: str, places: Tensor) -> "View":
        """Return the part with the listed indices of an axis, [places]."""
        return replace(self, **{axis: as_tensor(getattr(self, axis))[places]})


@dataclass(frozen=True)
class Outline:
    """The indices, axes and dtype of a view, without a source.

    Attributes:
        places: the indices of each axis in the source, and the numbers of heads.
        axes: the names of its axes, without those that were indexed by a number.
        dtype: the dtype of its weights.
        signed: whether these are effects, which may lie below 0.
    """

    places: Labels
    axes: tuple[str, ...]
    dtype: torch.dtype
    signed: bool = False

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Batch, heads, queries and keys, including those that were indexed by a number."""
        batch, heads, queries, keys = (len(self.places[axis]) for axis in AXES)
        return batch, heads, queries, keys

    def labels(self, **further: Places) -> Labels:
        """Return the labels of its axes and of further axes."""
        return {axis: self.places[axis] for axis in self.axes} | further

    def trim(self, values: Tensor, axes: tuple[str, ...] = AXES[:2]) -> Tensor:
        """Drop axes that were indexed by a number, and convert to the dtype of the weights.

        Args:
            values: [batch, heads, ...].
            axes: the names of its first axes.
        """
        values = values[tuple(slice(None) if axis in self.axes else 0 for axis in axes)]
        return values.to(self.dtype) if values.is_floating_point() else values


def _check_kind(item: object) -> None:
    if isinstance(item, slice | EllipsisType):
        return
    if not isinstance(item, bool):
        try:
            index(item)  # pyright: ignore[reportArgumentType]
        except TypeError:
            pass
        else:
            if not (isinstance(item, Tensor) and item.dtype == torch.bool):
                return
    raise TypeError(
        "an attention matrix is indexed by ints, slices and an ellipsis, "
        f"got {type(item).__name__}; for a list of rows or columns use .rows([...]) "
        "or .columns([...])"
    )
