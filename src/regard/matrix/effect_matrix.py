"""`EffectMatrix`: the effect of each pair on a target, as a lazy value."""

from contextlib import suppress
from dataclasses import replace
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.call import detached
from regard.matrix.arguments import check_given
from regard.matrix.derived import Effects
from regard.matrix.fused import NeedsTiles, fused_rows
from regard.matrix.lazy_matrix import LazyMatrix
from regard.matrix.matrix import AttentionMatrix
from regard.matrix.scores import Scores
from regard.matrix.source import read
from regard.matrix.tiles import BUDGET, tiles
from regard.matrix.view import View
from regard.patterns import Pattern, pairs
from regard.positions import Bias


class EffectMatrix(LazyMatrix):
    """The effect of each pair of query and key on a target: a signed number per head.

    With g_i the gradient of the target with respect to a head's output o_i, before the output
    projection, it is the gradient with respect to the score of the pair:

        E[i, j] = A[i, j] · g_i·(v_j − o_i)

    Positive effects support the target: attending there, rather than elsewhere, increases it. Rows
    sum to 0, so a default key without information has no effect; with a sink, the sink has the
    rest. It is a linear approximation, for small changes.

    It stores no n × n numbers, and is indexed and summarised like an `AttentionMatrix`. `TopKeys`,
    `Edges`, `Hits` and `Pool(…, "max")` compare absolute values; `Entropy`, `EffectiveKeys` and
    `Distance` need weights, and raise an error.

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
        check_given("value", value, query.device, (*key.shape[:3], value_dim))
        check_given("gradient", gradient, query.device, (*query.shape[:3], value_dim))
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
        """A[i, j] · g_i·v_j of the same part, whose rows sum to g·o.

        The loss of the target if a pair's term of the output is set to zero, without a new softmax.
        """
        # The new source would take tensors that were changed for those of the matrix.
        self._source.check()
        return self.of(replace(self._view, source=replace(self._source, contributions=True)))

    def of_keys(self, keys: slice | Pattern) -> Float[Tensor, "*heads queries"]:
        """Return the joint effect of some keys: the loss of the target if they are masked.

        Without the keys S, the output is o′ = (o − Σ_S A·v) / (1 − A_S), exactly; the effect is
        g·(o − o′). If no other keys are left, o′ is 0.

        Args:
            keys: a slice of all keys; or a pattern, if they depend on the query.

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
            masked = keys
        elif isinstance(keys, slice):  # pyright: ignore[reportUnnecessaryIsInstance]
            masked = pairs(keys=torch.arange(len(view.keys), device="cpu")[keys])
        else:
            raise TypeError(f"keys must be a slice or a pattern, got {type(keys).__name__}")

        change = _change_of_output(view, masked)
        if change is not None:
            gradient = read(self._source.gradient, view.batch, view.heads, view.queries)
            return view.outline.trim((gradient.to(change) * change).sum(dim=3))

        contributions = self.contributions.view.source
        total, rest = _sums_within_and_without(replace(view, source=contributions), masked)
        weights = self._source.weights
        _, left = _sums_within_and_without(replace(view, source=weights), masked)
        if isinstance(weights, Scores) and weights.call.sinks is not None:
            # Masking keys does not mask a sink.
            lse = weights.lse_of(view.batch, view.heads, view.queries)
            sinks = weights.call.sinks.to(lse)[torch.tensor(view.heads)][:, None]
            left += torch.exp(sinks - lse).nan_to_num(posinf=1.0)
        without = torch.where(left == 0.0, 0.0, rest / left)
        return view.outline.trim(total - without)


def _change_of_output(
    view: View, masked: Pattern
) -> Float[Tensor, "batch heads queries value_dim"] | None:
    """Return o − o′ by a fused call for each, or None if it needs tiles."""
    effects = cast(Effects, view.source)
    weights = effects.weights
    if not isinstance(weights, Scores):
        return None
    effects.check()
    # A given log-sum-exp is that of all keys.
    pattern = weights.call.pattern & ~masked
    remaining = replace(weights, call=replace(weights.call, pattern=pattern, lse=None))

    whole = fused_rows(replace(view, source=weights), BUDGET)
    rest = fused_rows(replace(view, source=remaining), BUDGET)
    if whole is None or rest is None:
        return None
    key_heads = torch.tensor(view.heads, device="cpu") // effects.group
    value = read(effects.value, view.batch, key_heads, view.keys)
    no_autocast = torch.autocast(effects.device.type, enabled=False)
    with suppress(NeedsTiles), torch.no_grad(), no_autocast:
        return whole.times(value) - rest.times(value)
    return None


def _sums_within_and_without(
    view: View, masked: Pattern
) -> tuple[Float[Tensor, "batch heads queries"], Float[Tensor, "batch heads queries"]]:
    """Return the sum of each row, with and without the masked pairs."""
    source = view.source
    total = torch.zeros(view.sizes[:3], dtype=source.dtype, device=source.device)
    rest = torch.zeros_like(total)
    with torch.no_grad():
        for tile in tiles(view):
            tile.rows_of(total).copy_(tile.weights.sum(dim=3))
            tile.rows_of(rest).copy_(tile.weights.masked_fill(tile.test(masked), 0.0).sum(dim=3))
    return total, rest
