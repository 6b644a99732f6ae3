"""`attend`, `attend_with_lse` and `plan`: the public functions."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, distributed
from torch.overrides import handle_torch_function, has_torch_function

from regard.attention.call import Attention, autocasts
from regard.attention.choose import Plan, planned, run
from regard.attention.decode import cached_step
from regard.attention.ring.run import planned as planned_ring
from regard.attention.ring.run import ring_inputs
from regard.attention.ring.run import run as run_ring
from regard.internals import uncompiled
from regard.patterns import Pattern
from regard.patterns.pattern import Everyone
from regard.patterns.regular import Causal
from regard.positions import Bias


def attend(
    query: Float[Tensor, "batch heads queries key_dim"],
    key: Float[Tensor, "batch key_heads keys key_dim"],
    value: Float[Tensor, "batch key_heads keys value_dim"],
    *,
    pattern: Pattern | None = None,
    bias: Bias | Float[Tensor, "batch_or_1 heads_or_1 queries keys"] | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    positions: int | Int[Tensor, "queries"] | None = None,
    backend: str = "auto",
    group: "distributed.ProcessGroup | None" = None,
) -> Float[Tensor, "batch heads queries value_dim"]:
    """Compute attention: softmax(scale · q·k + bias) @ value.

    Notation used for tensor shapes: batch sequences, heads, queries and keys along the sequence,
    key_dim and value_dim features per head. Fewer key heads than query heads mean grouped queries:
    query head h uses key head h // (heads / key_heads).

    Args:
        query: [batch, heads, queries, key_dim].
        key: [batch, key_heads, keys, key_dim].
        value: [batch, key_heads, keys, value_dim].
        pattern: which keys each query may attend to; all by default. A query with no allowed key
            returns zeros and has no gradient.
        bias: a score bias such as `alibi(heads)`, or a tensor that is added to the scores.
        scale: factor on the scores, 1/√key_dim by default.
        dropout: dropout probability of the weights; pass 0 for evaluation.
        positions: position of the first query, or of each query, [queries]. By default the last
            query has the position of the last key, as in self-attention with or without a cache.
        backend: "auto", "reference", "fused", "blocks" or "flex". A named backend never falls back
            to another.
        group: the processes that share the sequence: query, key and value are those of this rank's
            positions, which are listed in `positions` (`regard.attention.ring` has helpers) and by
            default follow those of the rank before. All ranks call it, and then `backward`, with
            the same pattern; keys and values travel where the pattern needs them. A bias that
            learns gets the gradient of this rank's queries: sum it over the ranks.

    Returns:
        [batch, heads, queries, value_dim], in the dtype of query.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the arguments don't fit together, or the backend doesn't support them.
        RuntimeError: a rank of the group is gone, or silent for longer than the group's timeout.

    >>> import torch, regard
    >>> x = torch.randn(2, 4, 100, 16)
    >>> regard.attend(x, x, x, pattern=regard.causal() & regard.window(before=9)).shape
    torch.Size([2, 4, 100, 16])
    """
    arguments = (query, key, value, pattern, bias, scale, dropout, positions)
    if has_torch_function(arguments[:3]):
        return _overridden(attend, arguments, backend, group)
    if group is not None:
        return _attend_sharded(*arguments, backend, group)[0]

    # A step of generation that an earlier layer has prepared needs no further checks.
    plain = pattern is None or isinstance(pattern, Everyone | Causal)
    usual = bias is None and not dropout and backend == "auto" and not plain
    if usual and not torch.compiler.is_compiling():
        step = cached_step(query, key, value, pattern, scale, positions)
        if step is not None:
            return step(query, key, value)

    # torch.compile traces dense and causal attention only.
    if not (plain and bias is None and backend in ("auto", "fused")):
        return _attend_uncompiled(arguments, False, backend)[0]
    return _attend(arguments, False, backend)[0]


def attend_with_lse(
    query: Float[Tensor, "batch heads queries key_dim"],
    key: Float[Tensor, "batch key_heads keys key_dim"],
    value: Float[Tensor, "batch key_heads keys value_dim"],
    *,
    pattern: Pattern | None = None,
    bias: Bias | Float[Tensor, "batch_or_1 heads_or_1 queries keys"] | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    positions: int | Int[Tensor, "queries"] | None = None,
    backend: str = "auto",
    group: "distributed.ProcessGroup | None" = None,
) -> tuple[Float[Tensor, "batch heads queries value_dim"], Float[Tensor, "batch heads queries"]]:
    """Compute attention, and the log-sum-exp of each row of scores.

    The log-sum-exp gives any single weight, exp(score − lse), and joins results over different
    keys: out = Σ exp(lse_p − lse) · out_p. It is differentiable.

    Args: as for `attend`.

    Returns:
        The output, [batch, heads, queries, value_dim], and the log-sum-exp, [batch, heads,
        queries], in float32 (float64 for float64 inputs); −inf for a query without allowed keys.

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 4, 8)
    >>> regard.attend_with_lse(x, x, x, pattern=regard.causal())[1].exp()
    tensor([[[1., 2., 3., 4.]]])
    """
    arguments = (query, key, value, pattern, bias, scale, dropout, positions)
    if has_torch_function(arguments[:3]):
        return _overridden(attend_with_lse, arguments, backend, group)
    if group is not None:
        return _attend_sharded(*arguments, backend, group)
    output, lse = _attend_uncompiled(arguments, True, backend)
    assert lse is not None
    return output, lse


def plan(
    query: Float[Tensor, "batch heads queries key_dim"],
    key: Float[Tensor, "batch key_heads keys key_dim"],
    value: Float[Tensor, "batch key_heads keys value_dim"],
    *,
    pattern: Pattern | None = None,
    bias: Bias | Float[Tensor, "batch_or_1 heads_or_1 queries keys"] | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    positions: int | Int[Tensor, "queries"] | None = None,
    backend: str = "auto",
    lse: bool = False,
    group: "distributed.ProcessGroup | None" = None,
) -> Plan:
    """Return the backend that `attend` would use for these arguments, the reason, and the FLOPs.

    With `group`, all ranks call it, and it also says what each rank computes and sends.

    Args: as for `attend`; with `lse=True`, as for `attend_with_lse`.

    >>> import torch, regard
    >>> x = torch.randn(1, 8, 4096, 64)
    >>> print(regard.plan(x, x, x, pattern=regard.causal() & regard.window(before=255)))
    blocks: the pattern leaves many blocks empty, which it skips. 7.6 % of the pairs are computed, \
2.6 billion floating-point operations.
    """
    arguments = (query, key, value, pattern, bias, scale, dropout, positions)
    if group is not None:
        return planned_ring(ring_inputs(*arguments, backend, group))
    inputs = Attention.checked(*arguments)
    return planned(inputs, lse, backend)


def _overridden(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    backend: str,
    group: "distributed.ProcessGroup | None",
) -> Any:
    """Hand a call to the torch function mode or tensor subclass that overrides it."""
    names = ("pattern", "bias", "scale", "dropout", "positions", "backend", "group")
    options = dict(zip(names, (*arguments[3:], backend, group), strict=True))
    return handle_torch_function(function, arguments[:3], *arguments[:3], **options)


def _attend(arguments: Any, lse: bool, backend: str) -> tuple[Tensor, Tensor | None]:
    return run(Attention.checked(*arguments), lse, backend)


_attend_uncompiled = uncompiled(_attend)


def _attend_on_ranks(*arguments: Any) -> tuple[Tensor, Tensor]:
    call = ring_inputs(*arguments)
    device = call.inputs.query.device.type
    casts = autocasts(call.inputs.query.device)
    with torch.autocast(device, enabled=False) if casts else nullcontext():
        return run_ring(call)


_attend_sharded = uncompiled(_attend_on_ranks)
