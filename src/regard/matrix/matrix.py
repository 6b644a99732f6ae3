"""`AttentionMatrix`: the attention matrix as a lazy value."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, distributed

from regard.attention.call import Attention, detached
from regard.attention.ring.run import ring_inputs
from regard.matrix.arguments import (
    check_given,
    check_range,
    check_weights,
)
from regard.matrix.distance import Distance, DistanceResult
from regard.matrix.entropy import EffectiveKeys, EffectiveKeysResult, Entropy, EntropyResult
from regard.matrix.lazy_matrix import LazyMatrix
from regard.matrix.scores import Scores
from regard.matrix.sharded import sharded_scores
from regard.matrix.tiles import compute_lse
from regard.matrix.view import View
from regard.matrix.weights import Weights
from regard.patterns import Pattern
from regard.positions import Bias


class AttentionMatrix(LazyMatrix):
    """The attention matrix of queries and keys: a value to index, multiply and summarise.

    It stores no n × n numbers. With the log-sum-exp of each row,

        A[i, j] = exp(scale · q_i·k_j + bias(i, j) − lse_i)

    so any part can be computed alone, exactly, from tensors of size n · d. The log-sum-exp of a row
    is computed on first use and cached. There are no gradients.

    Args:
        query: [batch, heads, queries, key_dim].
        key: [batch, key_heads, keys, key_dim]; fewer key heads mean grouped-query attention.
        pattern: the mask; everyone() by default.
        bias: a score bias, or a tensor to add to the scores. The lowest number of its dtype masks a
            pair, like −inf.
        scale: the factor on the scores, 1/√key_dim by default.
        lse: the log-sum-exp of each row, [batch, heads, queries], if known, as from
            `attend_with_lse`, sinks included.
        sinks: a sink score for each head, [heads], which takes its share of the softmax: the
            weights of a row sum to less than 1.
        positions: the positions of the queries, as for `attend`.
        group: the processes that share the sequence, as for `attend`: query and key are those of
            this rank's positions, and lse that of its queries. The matrix is that of the whole
            sequence. All ranks call `summarize`, and get the same results; other methods need rows
            of this rank. Each rank keeps the keys of all.

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
        group: "distributed.ProcessGroup | None" = None,
    ) -> None:
        if group is not None:
            shared = ring_inputs(
                query, key, key, pattern, bias, scale, 0.0, positions, "auto", group
            )
            self._view = View.whole(sharded_scores(shared, sinks, lse))
            return

        call = Attention.checked(query, key, None, pattern, bias, scale, 0.0, positions)
        check_given("lse", lse, call.query.device, call.sizes[:3])
        check_given("sinks", sinks, call.query.device, (call.num_heads,))
        self._view = View.whole(Scores(replace(call, sinks=sinks, lse=lse).kept()))

    @classmethod
    def from_weights(
        cls,
        weights: Float[Tensor, "batch heads queries keys"] | Float[Tensor, "queries keys"],
        *,
        pattern: Pattern | None = None,
        positions: int | Int[Tensor, "queries"] | None = None,
        check: bool = True,
    ) -> "AttentionMatrix":
        """Return the matrix of materialised weights.

        Args:
            weights: [batch, heads, queries, keys], or [queries, keys] of one head; the matrix has
                the same axes.
            pattern: the mask, if known: `received` is a mean over allowed queries.
            positions: the positions of the queries, as for `attend`.
            check: whether to check that weights are from 0 to 1, which reads all of them. Weights
                after dropout are not.

        Raises:
            TypeError: weights are not a tensor.
            ValueError: weights are below 0 or above 1, or the arguments don't fit together.

        >>> import torch, regard
        >>> regard.AttentionMatrix.from_weights(torch.eye(3)).entropy().nats
        tensor([0., 0., 0.])
        """
        check_weights(weights)
        is_one_head = weights.dim() == 2
        weights = detached(weights[None, None] if is_one_head else weights)
        if check:
            check_range(weights)
        # Check positions and pattern with an empty call of the same sizes.
        sizes = weights.shape
        query, key = weights.new_zeros(*sizes[:3], 0), weights.new_zeros(*sizes[:2], sizes[3], 0)
        call = Attention.checked(query, key, None, pattern, None, None, 0.0, positions)
        view = View.whole(Weights(weights, call.simple_pattern, call.query_positions))
        return cls.of(view.pick((0, 0)) if is_one_head else view)

    @property
    def lse(self) -> Tensor:
        """The log-sum-exp of each row, [..., queries]; −inf for an empty row."""
        view, source = self._view, self._view.source
        if not isinstance(source, Scores):
            raise ValueError("a matrix from weights has no log-sum-exp")
        with torch.no_grad():
            compute_lse(view)
            lse = source.lse_of(view.batch, view.heads, view.queries)
        return view.outline.trim(lse).clone()

    def entropy(self) -> EntropyResult:
        """Return the entropy of each row; see `Entropy`."""
        return self.summarize(Entropy())[0]

    def effective_keys(self) -> EffectiveKeysResult:
        """Return the effective number of keys of each row; see `EffectiveKeys`."""
        return self.summarize(EffectiveKeys())[0]

    def distance(self, shares: Sequence[float] = Distance.shares) -> DistanceResult:
        """Return the distribution of distances of each head; see `Distance`."""
        return self.summarize(Distance(shares))[0]
