"""`AttentionMatrix`: the attention matrix as a value that can be looked into at any length."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, overload

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from regard.attention.inputs import checked_inputs
from regard.matrix.arguments import check_given, check_range, check_weights
from regard.matrix.dense import LIMIT, dense
from regard.matrix.distance import Distance, DistanceResult
from regard.matrix.edges import Edges, EdgesResult
from regard.matrix.effective_keys import EffectiveKeys, EffectiveKeysResult
from regard.matrix.entropy import Entropy, EntropyResult
from regard.matrix.offsets import Offsets, OffsetsResult
from regard.matrix.pool import Pool, PoolResult
from regard.matrix.products import sums_over_rows, times
from regard.matrix.received import Received, ReceivedResult
from regard.matrix.reduction import AnyReduction
from regard.matrix.scores import Scores
from regard.matrix.summarize import summarize
from regard.matrix.tiles import BUDGET, compute_lse
from regard.matrix.top_keys import TopKeys, TopKeysResult
from regard.matrix.view import View
from regard.matrix.weights import Weights
from regard.patterns import Pattern
from regard.patterns.whole import whole_numbers
from regard.positions import Bias
from regard.positions.from_tensor import FromTensor


class AttentionMatrix:
    """The attention matrix of queries and keys: a value to index, multiply and summarise.

    It holds no n × n numbers. With the log-sum-exp of each row,

        A[i, j] = exp(scale · q_i·k_j + bias(i, j) − lse_i)

    so any part can be computed alone, exactly, from tensors of size n · d. The log-sum-exp of a row
    is computed when it is first needed, and kept. Nothing here carries gradients.

    Args:
        query: [batch, heads, queries, key_dim].
        key: [batch, key_heads, keys, key_dim]; fewer key heads than heads mean grouped queries.
        pattern: who may look at whom; everyone at everyone by default.
        bias: what order does to a score, or numbers to add to the scores. The lowest number of
            its type forbids a pair, as −inf does.
        scale: the factor on the scores, 1/√key_dim by default.
        lse: the logarithm of what each row is divided by, [batch, heads, queries], if it is known:
            what `attend_with_lse` returns, joined with the sinks if there are any.
        sinks: a score for each head, [heads], that takes its share of every row and isn't looked
            at, so that the weights of a row sum up to less than 1.
        positions: where the queries stand among the keys, as for `attend`.

    Raises:
        TypeError: an argument has the wrong kind.
        ValueError: the arguments don't fit together.

    >>> import torch, regard
    >>> x = torch.randn(1, 4, 100, 16)
    >>> A = regard.AttentionMatrix(x, x, pattern=regard.causal())
    >>> A
    AttentionMatrix(1 batch × 4 heads × 100 queries × 100 keys, float32, causal())
    >>> A[0, 3]
    AttentionMatrix(100 queries × 100 keys, float32, causal())
    >>> A[0, 3, 17].shape, A[0, 3, :, 5].shape, A[0, 3, 64:96, :32].dense().shape
    (torch.Size([100]), torch.Size([100]), torch.Size([32, 32]))
    """

    def __init__(
        self,
        query: Float[Tensor, "batch heads queries key_dim"],
        key: Float[Tensor, "batch key_heads keys key_dim"],
        *,
        pattern: Pattern | None = None,
        bias: Bias | Float[Tensor, "batch_or_1 heads_or_1 queries keys"] | None = None,
        scale: float | None = None,
        lse: Float[Tensor, "batch heads queries"] | None = None,
        sinks: Float[Tensor, "heads"] | None = None,
        positions: int | Int[Tensor, "queries"] | None = None,
    ) -> None:
        call = checked_inputs(query, key, key, pattern, bias, scale, 0.0, positions)
        check_given("lse", lse, call.query, tuple(call.query.shape[:3]))
        check_given("sinks", sinks, call.query, (call.num_heads,))
        first, bias = call.first_position, call.bias
        # What is written to tensors of inference mode isn't counted.
        if isinstance(bias, FromTensor) and bias.values.is_inference():
            bias = replace(bias, values=_copied(bias.values))
        source = Scores(
            _copied(call.query),
            _copied(call.key),
            call.pattern,
            bias,
            call.scale,
            None if sinks is None else _copied(sinks, always=True),
            call.query_positions if first is None else first,
            None if lse is None else _copied(lse, always=True),
        )
        self._view = View.whole(source)

    @classmethod
    def from_weights(
        cls,
        weights: Float[Tensor, "batch heads queries keys"],
        *,
        pattern: Pattern | None = None,
        positions: int | Int[Tensor, "queries"] | None = None,
        check: bool = True,
    ) -> "AttentionMatrix":
        """Return the matrix of weights that are known: of a model that writes them down.

        Args:
            weights: [batch, heads, queries, keys].
            pattern: who may look at whom, if that matters: `received` is a mean over those who may.
            positions: where the queries stand among the keys, as for `attend`.
            check: whether to make sure that weights lie from 0 to 1, which reads all of them. Those
                that dropout has scaled up don't.

        Raises:
            TypeError: weights are no tensor.
            ValueError: weights lie below 0 or above 1, or the arguments don't fit together.

        >>> import torch, regard
        >>> regard.AttentionMatrix.from_weights(torch.eye(3)[None, None])[0, 0].entropy().nats
        tensor([0., 0., 0.])
        """
        check_weights(weights)
        weights = weights.detach()
        if check:
            check_range(weights)
        # A call of the same sizes, with nothing in it, has its positions and pattern checked.
        sizes = weights.shape
        query, key = weights.new_zeros(*sizes[:3], 0), weights.new_zeros(*sizes[:2], sizes[3], 0)
        call = checked_inputs(query, key, key, pattern, None, None, 0.0, positions)
        return cls.of(View.whole(Weights(weights, call.simple_pattern, call.query_positions)))

    @classmethod
    def of(cls, view: View) -> "AttentionMatrix":
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
        """The type of the weights: float32, or float64 for float64 inputs."""
        return self._view.source.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are computed."""
        return self._view.source.device

    @property
    def pattern(self) -> Pattern:
        """Who may look at whom."""
        return self._view.source.pattern

    @property
    def lse(self) -> Tensor:
        """The logarithm of what each row is divided by, [..., queries]; −inf for an empty row."""
        view, source = self._view, self._view.source
        if not isinstance(source, Scores):
            raise ValueError("a matrix that was made from weights has no log-sum-exp")
        with torch.no_grad():
            compute_lse(view)
            found = source.lse_of(view.batch, view.heads, view.queries)
        return view.outline.trim(found).clone()

    @overload
    def __getitem__(self, where: slice) -> "AttentionMatrix": ...
    @overload
    def __getitem__(self, where: Any) -> Any: ...
    def __getitem__(self, where: Any) -> Any:
        """Return a part, by ints, slices and an ellipsis.

        It is an AttentionMatrix, not computed, as long as both queries and keys are axes of it;
        one row, one column or one number is a tensor.
        """
        view = self._view.pick(where)
        if {"queries", "keys"} <= set(view.axes):
            return self.of(view)
        return dense(view)

    def dense(self, *, limit: int = LIMIT) -> Float[Tensor, "*shape"]:
        """Return all weights.

        Args:
            limit: the most bytes to take, 1 GiB by default.

        Raises:
            ValueError: there are more.
        """
        return dense(self._view, limit)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all weights as an array, for NumPy and whatever draws with it.

        Raises:
            ValueError: there are more than `dense` takes by default, or `copy` is False.
        """
        if copy is False:
            raise ValueError("weights are computed anew for an array of them: leave copy=False out")
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

    def entropy(self) -> EntropyResult:
        """Return how widely each row looks; see `Entropy`."""
        return self.summarize(Entropy())[0]

    def effective_keys(self) -> EffectiveKeysResult:
        """Return how many keys each row looks at; see `EffectiveKeys`."""
        return self.summarize(EffectiveKeys())[0]

    def received(self) -> ReceivedResult:
        """Return what each key gets; see `Received`."""
        return self.summarize(Received())[0]

    def offsets(self, reach: int) -> OffsetsResult:
        """Return how mass lies around the diagonal; see `Offsets`."""
        return self.summarize(Offsets(reach))[0]

    def distance(self, shares: Sequence[float] = Distance.shares) -> DistanceResult:
        """Return how far each head looks; see `Distance`."""
        return self.summarize(Distance(shares))[0]

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
        return f"AttentionMatrix({shape}, {str(self.dtype).split('.')[-1]}, {self.pattern!r})"


def _copied(tensor: Tensor, *, always: bool = False) -> Tensor:
    """Return a tensor, or a copy of it if it is one of inference mode."""
    tensor = tensor.detach()
    if not always and not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        return tensor.clone()
