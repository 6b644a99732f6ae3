"""`LazyMatrix`: a matrix for each head, computed on demand."""

from collections.abc import Sequence
from typing import Any, Literal, Self, overload

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from regard.matrix.arguments import checked_indices
from regard.matrix.distance import Offsets, OffsetsResult
from regard.matrix.pool import Pool, PoolResult
from regard.matrix.products import LIMIT, dense, sums_over_rows, times
from regard.matrix.received import Received, ReceivedResult
from regard.matrix.reduction import AnyReduction
from regard.matrix.summarize import summarize
from regard.matrix.tiles import BUDGET
from regard.matrix.top_keys import Edges, EdgesResult, TopKeys, TopKeysResult
from regard.matrix.view import View
from regard.patterns import Pattern


class LazyMatrix:
    """A number for each pair of query and key in each head: a weight or an effect.

    It can be indexed, multiplied and summarised, and is computed in tiles.
    """

    _view: View

    @classmethod
    def of(cls, view: View) -> Self:
        """Return the matrix of a view."""
        matrix = cls.__new__(cls)
        matrix._view = view
        return matrix

    @property
    def view(self) -> View:
        """The view of the source."""
        return self._view

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes: "batch", "heads", "queries" and "keys", or some of them."""
        return self._view.axes

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        return self._view.shape

    @property
    def dtype(self) -> torch.dtype:
        """The dtype: float32, or float64 for float64 inputs."""
        return self._view.source.dtype

    @property
    def device(self) -> torch.device:
        """The device."""
        return self._view.source.device

    @property
    def pattern(self) -> Pattern:
        """The pattern."""
        return self._view.source.pattern

    @overload
    def __getitem__(self, indices: slice) -> Self: ...
    @overload
    def __getitem__(self, indices: Any) -> Any: ...
    def __getitem__(self, indices: Any) -> Any:
        """Return a part, by ints, slices and an ellipsis.

        It is a lazy matrix of the same kind if it has both axes queries and keys; one row, one
        column or one number is a tensor.
        """
        view = self._view.pick(indices)
        if {"queries", "keys"} <= set(view.axes):
            return self.of(view)
        return dense(view)

    def dense(self, *, limit: int = LIMIT) -> Float[Tensor, "*shape"]:
        """Return all numbers.

        Args:
            limit: maximum bytes, 1 GiB by default.

        Raises:
            ValueError: it takes more.
        """
        return dense(self._view, limit)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all numbers as a NumPy array.

        Raises:
            ValueError: it is larger than the limit of `dense`, or `copy` is False.
        """
        if copy is False:
            raise ValueError("copy must be None or True, got False: the array is always computed")
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
        numbers = dense(self._view.listed("keys", ascending), limit)
        return numbers if torch.equal(ascending, places) else numbers[..., order.to(numbers.device)]

    def _places(self, axis: str, indices: Sequence[int] | Tensor) -> Tensor:
        size = len(getattr(self._view, axis))
        return checked_indices(indices, f"indices of {axis}", size, axis)

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
            budget: maximum memory in bytes, without the results; 256 MiB by default.
            progress: whether to show a progress bar. By default in terminals and notebooks after
                two seconds, if rich is installed.

        Raises:
            TypeError: one of them is not a reduction, or a class instead of an instance.

        >>> import torch, regard
        >>> from regard.matrix import Entropy, Pool
        >>> x = torch.randn(1, 4, 1000, 16)
        >>> entropy, picture = regard.AttentionMatrix(x, x).summarize(Entropy(), Pool(100))
        >>> entropy.nats.shape, picture.cells.shape
        (torch.Size([1, 4, 1000]), torch.Size([1, 4, 100, 100]))
        """
        return summarize(self._view, reductions, budget=budget, progress=progress)

    def received(self) -> ReceivedResult:
        """Return the mean weight of each key; see `Received`."""
        return self.summarize(Received())[0]

    def offsets(self, reach: int) -> OffsetsResult:
        """Return the weight by relative position; see `Offsets`."""
        return self.summarize(Offsets(reach))[0]

    def pool(self, size: int, how: Literal["mean", "max"] = "mean") -> PoolResult:
        """Return each head, pooled to a small matrix; see `Pool`."""
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
