"""Effects on groups of keys from outside of them, by one fused call for all."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import attend_with_lse
from regard.matrix.effects import Effects
from regard.matrix.index import read
from regard.matrix.scores import Scores
from regard.patterns import Pattern

_PAIRS = 2**22
"""So many pairs inside of a group are computed at once."""


def effects_from_outside(
    effects: Effects, groups: Sequence[range]
) -> Float[Tensor, "batch heads groups"] | None:
    """Return the sum of the effects on each group of keys, of all queries outside of the group.

    A sum over queries, Σ_i A[i, j] x_i, is attention too: of keys to queries, with the scores of
    the pairs less the log-sum-exp of their rows. With gradients and g·o for x, one fused call gives
    the effect on each key, (Σ_i A[i, j] g_i) · v_j − Σ_i A[i, j] (g·o)_i. What queries inside of a
    group do is computed and taken off.

    Args:
        effects: of queries and keys that stand at the same positions.
        groups: the keys of each group, and the queries that don't count.

    Returns:
        [batch, heads, groups]; None if there is a bias or a sink, if g·o is left out, or if the
        pattern depends on more than the distance, so that keys can't attend to queries by it.
    """
    weights = effects.weights
    if not isinstance(weights, Scores) or weights.biased or weights.sinks is not None:
        return None
    if effects.contributions:
        return None
    _, _, queries, keys = effects.shape
    aligned = isinstance(weights.query_positions, int) and weights.query_positions == 0
    if not weights.full_pattern.relative or not aligned or queries != keys:
        return None
    effects.check()
    with torch.no_grad():
        pairs = _Pairs.of(effects, weights)
        by_key = pairs.by_key()
        found = [
            by_key[:, :, group.start : group.stop].sum(dim=2) - sum(pairs.inside(group))
            for group in groups
        ]
        return torch.stack(found, dim=2) if found else by_key[:, :, :0]


@dataclass(frozen=True, eq=False)
class _Pairs:
    """What the effects of pairs are computed from.

    Attributes:
        query: multiplied by the scale.
        key: of each head.
        value: of each head.
        gradient: of the target with respect to the output.
        lse: of each row; 0 for rows without keys.
        totals: g·o of each row.
        pattern: the mask, which depends on the distance only.
    """

    query: Float[Tensor, "batch heads queries key_dim"]
    key: Float[Tensor, "batch heads keys key_dim"]
    value: Float[Tensor, "batch heads keys value_dim"]
    gradient: Float[Tensor, "batch heads queries value_dim"]
    lse: Float[Tensor, "batch heads queries 1"]
    totals: Float[Tensor, "batch heads queries 1"]
    pattern: Pattern

    @classmethod
    def of(cls, effects: Effects, weights: Scores) -> "_Pairs":
        """Read the tensors of a source; compute and keep what it does not know of its rows."""
        dtype, pattern = effects.dtype, weights.full_pattern
        sizes = effects.value.shape[:3]
        batch, heads, queries = (range(size) for size in effects.shape[:3])
        query = weights.whole_query.to(dtype) * weights.scale
        key = weights.whole_key.to(dtype)
        value = read(effects.value, *map(range, sizes)).to(dtype)
        gradient = read(effects.gradient, batch, heads, queries).to(dtype)
        lse = weights.lse_of(batch, heads, queries)
        totals = effects.totals_of(batch, heads, queries)
        if bool((lse.isnan() | totals.isnan()).any()):
            output, new = attend_with_lse(query, key, value, pattern=pattern, scale=1.0)
            lse.copy_(torch.where(lse.isnan(), new, lse))
            totals.copy_((gradient * output).sum(dim=3))
        key, value = (x.repeat_interleave(effects.group, dim=1) for x in (key, value))
        lse = lse.masked_fill(lse == -torch.inf, 0.0)
        return cls(query, key, value, gradient, lse[..., None], totals[..., None], pattern)

    def by_key(self) -> Float[Tensor, "batch heads keys"]:
        """Return the sum of the effects on each key."""
        ones = torch.ones_like(self.key[..., :1])
        # In reverse, keys attend to queries behind them as queries do to keys before them.
        sums, lse = attend_with_lse(
            torch.cat([self.key, ones], dim=3).flip(2),
            torch.cat([self.query, -self.lse], dim=3).flip(2),
            torch.cat([self.gradient, self.totals], dim=3).flip(2),
            pattern=self.pattern,
            scale=1.0,
        )
        sums = (sums * lse.exp()[..., None]).flip(2)
        return (sums[..., :-1] * self.value).sum(dim=3) - sums[..., -1]

    def inside(self, group: range) -> Iterator[Float[Tensor, "batch heads"]]:
        """Compute the sums of the effects on a group by some of its own queries at a time."""
        device, keys = self.key.device, slice(group.start, group.stop)
        columns = torch.arange(group.start, group.stop, device=device)
        step = max(1, _PAIRS // max(1, len(group) * self.key.shape[1]))
        for start in range(group.start, group.stop, step):
            rows = slice(start, min(start + step, group.stop))
            positions = torch.arange(rows.start, rows.stop, device=device)[:, None]
            allowed = self.pattern.test(torch.zeros_like(positions), positions, columns)
            scores = self.query[:, :, rows] @ self.key[:, :, keys].mT - self.lse[:, :, rows]
            products = self.gradient[:, :, rows] @ self.value[:, :, keys].mT
            effects = scores.exp_().mul_(products.sub_(self.totals[:, :, rows]))
            yield effects.masked_fill_(~allowed, 0.0).sum(dim=(2, 3))
