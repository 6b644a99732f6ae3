"""`EffectMatrix`: what each look does to a target, as a value like the attention matrix."""

from dataclasses import replace
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.matrix.arguments import check_given, detached
from regard.matrix.effects import Effects
from regard.matrix.lazy_matrix import LazyMatrix
from regard.matrix.matrix import AttentionMatrix
from regard.matrix.scores import Scores
from regard.matrix.tiles import tiles
from regard.matrix.view import View
from regard.patterns import Pattern
from regard.positions import Bias


class EffectMatrix(LazyMatrix):
    """What looking at a key does to a target: a signed number for each query and key of each head.

    With g_i the gradient of the target with respect to a head's output o_i, before the output
    projection, it is the gradient with respect to the score of the pair:

        E[i, j] = A[i, j] · g_i·(v_j − o_i)

    It says what looking there rather than elsewhere adds to the target: positive supports it. Rows
    sum up to 0, so a key that is looked at for want of a better one, and carries nothing, gets
    nothing; with a sink, the sink has the rest. It is a straight line: what a change would do if it
    were small.

    It holds no n × n numbers, and is indexed and summarised as an `AttentionMatrix` is. `TopKeys`,
    `Edges`, `Hits` and `Pool(…, "max")` go by the size of an effect, whatever its sign; `Entropy`,
    `EffectiveKeys` and `Distance`, which are about weights, are refused.

    Args:
        query: [batch, heads, queries, key_dim].
        key: [batch, key_heads, keys, key_dim].
        value: [batch, key_heads, keys, value_dim].
        gradient: of the target with respect to the output, [batch, heads, queries, value_dim].
        pattern: as for `AttentionMatrix`.
        bias: as for `AttentionMatrix`.
        scale: as for `AttentionMatrix`.
        lse: as for `AttentionMatrix`.
        sinks: as for `AttentionMatrix`.
        positions: as for `AttentionMatrix`.

    Raises:
        TypeError: an argument has the wrong kind.
        ValueError: the arguments don't fit together.

    >>> import torch, regard
    >>> query, key, value, gradient = torch.randn(4, 1, 2, 100, 16)
    >>> E = regard.EffectMatrix(query, key, value, gradient, pattern=regard.causal())
    >>> E
    EffectMatrix(1 batch × 2 heads × 100 queries × 100 keys, float32, causal())
    >>> bool(E[0, 1, 17].sum().abs() < 1e-5)
    True
    """

    def __init__(
        self,
        query: Float[Tensor, "batch heads queries key_dim"],
        key: Float[Tensor, "batch key_heads keys key_dim"],
        value: Float[Tensor, "batch key_heads keys value_dim"],
        gradient: Float[Tensor, "batch heads queries value_dim"],
        *,
        pattern: Pattern | None = None,
        bias: Bias | Float[Tensor, "batch_or_1 heads_or_1 queries keys"] | None = None,
        scale: float | None = None,
        lse: Float[Tensor, "batch heads queries"] | None = None,
        sinks: Float[Tensor, "heads"] | None = None,
        positions: int | Int[Tensor, "queries"] | None = None,
    ) -> None:
        weights = AttentionMatrix(
            query,
            key,
            pattern=pattern,
            bias=bias,
            scale=scale,
            lse=lse,
            sinks=sinks,
            positions=positions,
        )
        for name, tensor in (("value", value), ("gradient", gradient)):
            if not isinstance(tensor, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
        value_dim = value.shape[-1] if value.dim() else 0
        check_given("value", value, query, (*key.shape[:3], value_dim))
        check_given("gradient", gradient, query, (*query.shape[:3], value_dim))
        source = weights.view.source
        self._view = View.whole(Effects(source, detached(value), detached(gradient)))

    @property
    def _source(self) -> Effects:
        return cast(Effects, self._view.source)

    @property
    def weights(self) -> AttentionMatrix:
        """The weights of the same part."""
        return AttentionMatrix.of(replace(self._view, source=self._source.weights))

    @property
    def contributions(self) -> "EffectMatrix":
        """A[i, j] · g_i·v_j of the same part, whose rows sum up to g·o.

        What the target would lose if a pair's share of the output were set to zero, and nothing
        took its place.
        """
        return self.of(replace(self._view, source=replace(self._source, contributions=True)))

    def of_keys(self, keys: slice | Pattern) -> Float[Tensor, "*heads queries"]:
        """Return what all looks at some keys together do: what masking them would take away.

        Without the keys S, the output is o′ = (o − Σ_S A·v) / (1 − A_S), exactly; the effect is
        g·(o − o′). Where nothing else is left to look at, o′ is 0.

        Args:
            keys: which keys, of all that there are; or, where that depends on the query, a pattern.

        Returns:
            [..., queries].

        >>> import torch, regard
        >>> query, key, value, gradient = torch.randn(4, 1, 2, 100, 16)
        >>> regard.EffectMatrix(query, key, value, gradient)[0].of_keys(slice(10, 20)).shape
        torch.Size([2, 100])
        """
        view = replace(self._view, keys=range(self._source.shape[3]))
        if isinstance(keys, Pattern):
            view.check(keys)
        elif not isinstance(keys, slice):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"keys must be a slice or a pattern, got {type(keys).__name__}")
        contributions = self.contributions.view.source
        total, rest = _sums_within_and_without(replace(view, source=contributions), keys)
        weights = self._source.weights
        _, left = _sums_within_and_without(replace(view, source=weights), keys)
        if isinstance(weights, Scores) and weights.sinks is not None:
            # A sink is still there when keys are masked.
            lse = weights.lse_of(view.batch, view.heads, view.queries)
            sinks = weights.sinks.to(lse)[torch.tensor(view.heads)][:, None]
            left += torch.exp(sinks - lse).nan_to_num(posinf=1.0)
        without = torch.where(left == 0.0, 0.0, rest / left)
        return view.outline.trim(total - without)


def _sums_within_and_without(
    view: View, keys: slice | Pattern
) -> tuple[Float[Tensor, "batch heads queries"], Float[Tensor, "batch heads queries"]]:
    """Return the sum of each row, and that without some keys."""
    source = view.source
    chosen = torch.zeros(source.shape[3], dtype=torch.bool, device=source.device)
    if isinstance(keys, slice):
        chosen[keys] = True
    total = torch.zeros(view.sizes[:3], dtype=source.dtype, device=source.device)
    rest = torch.zeros_like(total)
    with torch.no_grad():
        for tile in tiles(view):
            gone = tile.test(keys) if isinstance(keys, Pattern) else chosen[tile.key_positions]
            tile.rows_of(total).copy_(tile.weights.sum(dim=3))
            tile.rows_of(rest).copy_(tile.weights.masked_fill(gone, 0.0).sum(dim=3))
    return total, rest
