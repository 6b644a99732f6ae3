"""`LazyMatrix`: a matrix for each head that is computed where and when it is looked at."""

from collections.abc import Sequence
from typing import Any, Literal, TypeVar, overload

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from regard.matrix.dense import LIMIT, dense
from regard.matrix.edges import Edges, EdgesResult
from regard.matrix.offsets import Offsets, OffsetsResult
from regard.matrix.pool import Pool, PoolResult
from regard.matrix.products import sums_over_rows, times
from regard.matrix.received import Received, ReceivedResult
from regard.matrix.reduction import AnyReduction
from regard.matrix.summarize import summarize
from regard.matrix.tiles import BUDGET
from regard.matrix.top_keys import TopKeys, TopKeysResult
from regard.matrix.view import View
from regard.patterns import Pattern
from regard.patterns.whole import whole_numbers

Matrix = TypeVar("Matrix", bound="LazyMatrix")


class LazyMatrix:
    """A number for each pair of a query and a key, in each head: of weights, or of effects.

    It can be indexed, multiplied and summarised, and is computed in tiles.
    """

    _view: View

    @classmethod
    def of(cls: "type[Matrix]", view: View) -> "Matrix":
        """Return the matrix of a view."""
        matrix = cls.__new__(cls)
        matrix._view = view
        return matrix

    @property
    def view(self) -> View:
        """What reductions are told of it: which part of which numbers it is."""
        return self._view

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes: "batch", "heads", "queries" and "keys", or the last of them."""
        return self._view.axes

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        return self._view.shape

    @property
    def dtype(self) -> torch.dtype:
        """The type of the numbers: float32, or float64 for float64 inputs."""
        return self._view.source.dtype

    @property
    def device(self) -> torch.device:
        """Where the numbers are computed."""
        return self._view.source.device

    @property
    def pattern(self) -> Pattern:
        """Who may look at whom."""
        return self._view.source.pattern

    @overload
    def __getitem__(self: "Matrix", where: slice) -> "Matrix": ...
    @overload
    def __getitem__(self, where: Any) -> Any: ...
    def __getitem__(self, where: Any) -> Any:
        """Return a part, by ints, slices and an ellipsis.

        It is a matrix of the same kind, not computed, as long as both queries and keys are axes of
        it; one row, one column or one number is a tensor.
        """
        view = self._view.pick(where)
        if {"queries", "keys"} <= set(view.axes):
            return self.of(view)
        return dense(view)

    def dense(self, *, limit: int = LIMIT) -> Float[Tensor, "*shape"]:
        """Return all numbers.

        Args:
            limit: the most bytes to take, 1 GiB by default.

        Raises:
            ValueError: there are more.
        """
        return dense(self._view, limit)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all numbers as an array, for NumPy and whatever draws with it.

        Raises:
            ValueError: there are more than `dense` takes by default, or `copy` is False.
        """
        if copy is False:
            raise ValueError("numbers are computed anew for an array of them: leave copy=False out")
        return np.asarray(self.dense().cpu().numpy(), dtype)

    def rows(
        self, indices: Sequence[int] | Int[Tensor, "rows"], *, limit: int = LIMIT
    ) -> Float[Tensor, "*heads rows keys"]:
        """Return the listed rows, [..., rows, keys]; limit as for `dense`."""
        return dense(self._view.listed("queries", self._places("queries", indices)), limit)

    def columns(
        self, indices: Sequence[int] | Int[Tensor, "columns"], *, limit: int = LIMIT
    ) -> Float[Tensor, "*heads queries columns"]:
        """Return the listed columns, [..., queries, columns]; limit as for `dense`."""
        places = self._places("keys", indices)
        ascending, order = torch.unique(places, return_inverse=True)
        found = dense(self._view.listed("keys", ascending), limit)
        return found if torch.equal(ascending, places) else found[..., order.to(found.device)]

    def _places(self, axis: str, indices: Sequence[int] | Tensor) -> Tensor:
        numbers = whole_numbers(indices)
        if numbers is None or numbers.dim() != 1:
            raise TypeError(f"indices of {axis} must be a list of whole numbers, got {indices!r}")
        size = len(getattr(self._view, axis))
        numbers = numbers.cpu()
        outside = numbers[(numbers < -size) | (numbers >= size)]
        if len(outside):
            raise IndexError(
                f"there are {size} {axis}, counted from 0, got index {int(outside[0])}"
            )
        return numbers % max(1, size)

    def __matmul__(self, values: Tensor) -> Tensor:
        """Return the output of attention, [..., queries, dim], for values [..., keys, dim].

        Values may have fewer heads, as keys may.
        """
        return times(self._view, values)

    def __rmatmul__(self, vectors: Tensor) -> Tensor:
        """Return sums of rows, [..., vectors, keys], for vectors [..., vectors, queries]."""
        return sums_over_rows(vectors, self._view)

    def summarize(
        self, *reductions: AnyReduction, budget: int = BUDGET, progress: bool | None = None
    ) -> tuple[Any, ...]:
        """Return the result of each reduction, from one pass over the matrix.

        Args:
            reductions: such as `Entropy()` and `Pool(512)` of `regard.matrix`.
            budget: how many bytes may be held at once, beside the results; 256 MiB by default.
            progress: whether to show a progress bar. By default one is shown in terminals and
                notebooks for what takes longer than two seconds, if rich is installed.

        Raises:
            TypeError: one of them is no reduction, or a class without its parameters.

        >>> import torch, regard
        >>> from regard.matrix import Entropy, Pool
        >>> x = torch.randn(1, 4, 1000, 16)
        >>> entropy, picture = regard.AttentionMatrix(x, x).summarize(Entropy(), Pool(100))
        >>> entropy.nats.shape, picture.cells.shape
        (torch.Size([1, 4, 1000]), torch.Size([1, 4, 100, 100]))
        """
        return summarize(self._view, reductions, budget=budget, progress=progress)

    def received(self) -> ReceivedResult:
        """Return what each key gets; see `Received`."""
        return self.summarize(Received())[0]

    def offsets(self, reach: int) -> OffsetsResult:
        """Return how mass lies around the diagonal; see `Offsets`."""
        return self.summarize(Offsets(reach))[0]

    def pool(self, size: int, how: Literal["mean", "max"] = "mean") -> PoolResult:
        """Return a picture of each head; see `Pool`."""
        return self.summarize(Pool(size, how))[0]

    def top(self, count: int) -> TopKeysResult:
        """Return the strongest keys of each row; see `TopKeys`."""
        return self.summarize(TopKeys(count))[0]

    def edges(self, *, threshold: float, limit: int = Edges.limit) -> EdgesResult:
        """Return the pairs whose weight reaches a threshold; see `Edges`."""
        return self.summarize(Edges(threshold, limit))[0]

    def __repr__(self) -> str:
        sizes = zip(self.shape, self.axes, strict=True)
        shape = " × ".join(f"{size} {axis}" for size, axis in sizes)
        return f"{type(self).__name__}({shape}, {str(self.dtype).split('.')[-1]}, {self.pattern!r})"
