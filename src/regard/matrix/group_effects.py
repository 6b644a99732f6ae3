"""Effects on groups of keys from outside of them, by one fused call for all."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import attend_with_lse
from regard.matrix.derived import Effects
from regard.matrix.fused import attend_to_queries
from regard.matrix.scores import Scores
from regard.matrix.source import read
from regard.patterns import Pattern

_PAIRS = 2**22
"""Number of pairs inside of a group that are computed at once."""

_PerPosition = Float[Tensor, "batch heads positions _"]
_Factors = tuple[_PerPosition, _PerPosition, _PerPosition, _PerPosition]


def effects_from_outside(
    effects: Effects, groups: Sequence[range]
) -> Float[Tensor, "batch heads groups"] | None:
    """Return the sum of the effects on each group of keys, of all queries outside of the group.

    A sum over queries, Σ_i A[i, j] x_i, is attention too: of keys to queries, with the scores of
    the pairs less the log-sum-exp of their rows. With gradients and g·o for x, one fused call gives
    the effect on each key, (Σ_i A[i, j] g_i) · v_j − Σ_i A[i, j] (g·o)_i. The effects of pairs
    inside of a group are computed and subtracted.

    Args:
        effects: the effects, of queries and keys at the same positions.
        groups: the keys of each group, and the queries that don't count.

    Returns:
        [batch, heads, groups]; None if there is a bias or a sink, if g·o is left out, or if queries
        are not at the positions of the keys.
    """
    weights = effects.weights
    if not isinstance(weights, Scores) or weights.biased or weights.call.sinks is not None:
        return None
    if effects.contributions:
        return None
    _, _, queries, keys = effects.shape
    aligned = weights.call.first_position == 0
    if not aligned or queries != keys:
        return None
    effects.check()
    with torch.no_grad(), torch.autocast(effects.device.type, enabled=False):
        factors = _factors(effects, weights)
        by_key = _sums_by_key(factors, weights.call.pattern)
        sums = [
            by_key[:, :, group.start : group.stop].sum(dim=2)
            - _sum_inside(factors, weights.call.pattern, group)
            for group in groups
        ]
        return torch.stack(sums, dim=2) if sums else by_key[:, :, :0]


def _factors(effects: Effects, weights: Scores) -> _Factors:
    """Return queries, keys, values and gradients such that an effect is e^(q·k) · (g·v).

    They have one more column: of q·k it makes q·k − lse, and of g·v it makes g·v − g·o.
    """
    # 1. Read the tensors.
    dtype = effects.dtype
    sizes = effects.value.shape[:3]
    batch, heads, queries = (range(size) for size in effects.shape[:3])
    query = weights.whole_query.to(dtype) * weights.call.scale
    key = weights.whole_key.to(dtype)
    value = read(effects.value, *map(range, sizes)).to(dtype)
    gradient = read(effects.gradient, batch, heads, queries).to(dtype)

    # 2. Compute and cache lse and g·o of rows of which the source does not know them.
    lse = weights.lse_of(batch, heads, queries)
    totals = effects.totals_of(batch, heads, queries)
    if bool((lse.isnan() | totals.isnan()).any()):
        pattern = weights.call.pattern
        output, new_lse = attend_with_lse(query, key, value, pattern=pattern, scale=1.0)
        lse.copy_(torch.where(lse.isnan(), new_lse, lse))
        totals.copy_((gradient * output).sum(dim=3))

    # 3. Add the columns. Rows without keys have lse −inf and no pair.
    key, value = (x.repeat_interleave(effects.group, dim=1) for x in (key, value))
    lse = lse.masked_fill(lse == -torch.inf, 0.0)
    ones = torch.ones_like(key[..., :1])
    return (
        torch.cat([query, -lse[..., None]], dim=3),
        torch.cat([key, ones], dim=3),
        torch.cat([value, ones], dim=3),
        torch.cat([gradient, -totals[..., None]], dim=3),
    )


def _sums_by_key(factors: _Factors, pattern: Pattern) -> Float[Tensor, "batch heads keys"]:
    """Return the sum of the effects on each key."""
    query, key, value, gradient = factors
    sums, lse = attend_to_queries(key, query, gradient, pattern, first=0)
    return (sums * lse.exp()[..., None] * value).sum(dim=3)


def _sum_inside(factors: _Factors, pattern: Pattern, group: range) -> Float[Tensor, "batch heads"]:
    """Return the sum of the effects on a group by its own queries, some queries at a time."""
    query, key, value, gradient = (x[:, :, group.start : group.stop] for x in factors)
    keys = torch.arange(group.start, group.stop, device=key.device)
    batch = torch.arange(pattern.batch_size or 1, device=key.device)[:, None, None, None]
    total = query.new_zeros(query.shape[:2])
    num_rows = max(1, _PAIRS // max(1, len(group) * key.shape[1]))
    for first in range(0, len(group), num_rows):
        rows = slice(first, first + num_rows)
        allowed = pattern.test(batch, keys[rows, None], keys)
        effects = (query[:, :, rows] @ key.mT).exp_()
        effects.mul_(gradient[:, :, rows] @ value.mT)
        total += effects.masked_fill_(~allowed, 0.0).sum(dim=(2, 3))
    return total
