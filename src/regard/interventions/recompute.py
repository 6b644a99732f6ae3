"""Compute some rows of some heads of a kernel's call again, with other inputs."""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention import attend, attend_with_lse
from regard.attention.call import Attention
from regard.calls.check import check_scores, check_weights, tolerance
from regard.capture.call import KernelCall, UnreadableError
from regard.capture.masks import Masks
from regard.capture.parse import ParsedCall, parse_call
from regard.matrix import AttentionMatrix
from regard.matrix.scores import Scores
from regard.matrix.view import View


def parsed_with_gradient(call: KernelCall, masks: Masks, *, cross: bool) -> ParsedCall:
    """Interpret a call; numbers that learn stay tensors: what is read of a mask has no gradient.

    Raises:
        UnreadableError: it is not supported.
    """
    if call.mask is not None and call.mask.requires_grad:
        added = call.mask if call.added is None else call.mask + call.added
        call = replace(call, mask=None, added=added)
    try:
        return parse_call(call, masks, cross=cross)
    except ValueError as error:
        raise UnreadableError(str(error)) from None


def check_parsed(
    call: KernelCall, inputs: Attention, number: int, *, by_scores: bool = False
) -> None:
    """Refuse a call that was misunderstood: compare some rows of its output with A @ V.

    Args:
        call: the call.
        inputs: the call as it was parsed.
        number: its number, which chooses the rows.
        by_scores: whether A is computed from queries and keys, even if the kernel returned it.

    Raises:
        UnreadableError: the kernel returned something else, or drops weights.
    """
    if call.dropout > 0:
        raise UnreadableError("dropout is on: call model.eval() first")
    value, output = call.value, call.output
    if call.weights is not None and call.sinks is None and not by_scores:
        check = check_weights(call.weights, value, output, number, dropout=False)
    else:
        check = check_scores(Scores(inputs), value, output, number, dropout=False)
    if check.passed is False:
        raise UnreadableError(f"{call.kernel} returned something else than A @ V ({check})")
    if by_scores and call.weights is not None and call.weights.numel():
        # Weights may be a softmax without the sinks that the output has.
        last = AttentionMatrix.of(View.whole(Scores(inputs)))[:, :, -1]
        if bool(((last - call.weights[:, :, -1]).abs() > tolerance(call.weights.dtype)).any()):
            raise UnreadableError(f"{call.kernel} returned other weights than its scores have")


def recomputed(
    call: KernelCall, inputs: Attention, heads: list[int], rows: Int[Tensor, "rows"]
) -> KernelCall:
    """Return a call in which some rows of some heads were computed again.

    All other rows stay bit by bit what they are. Weights that the kernel returned are computed too,
    with their gradient: they are the output for values that are the identity matrix, n × n as they.

    Args:
        call: the call, with the values.
        inputs: its queries, keys and rule, changed where they are to differ.
        heads: the heads.
        rows: the rows.
    """
    needs_lse = inputs.sinks is not None or call.lse is not None
    output, lse = computed(call, inputs, heads, rows, needs_lse=needs_lse)
    dim = call.value.shape[-1]
    changed = with_rows(call, output[..., :dim], lse, heads, rows)
    if call.weights is None:
        return changed
    index = torch.tensor(heads, device=output.device)
    weights = put(call.weights, output[..., dim:], index, rows.to(output.device))
    return replace(changed, weights=weights)


def computed(
    call: KernelCall,
    inputs: Attention,
    heads: list[int],
    rows: Int[Tensor, "rows"],
    *,
    needs_lse: bool = True,
) -> tuple[Float[Tensor, "batch some rows dim"], Float[Tensor, "batch some rows"] | None]:
    """Return the output of some rows of some heads, and their log-sum-exp without the sinks.

    Behind the output are the weights, if the kernel returned some.

    Args:
        call: the call, with the values.
        inputs: its queries, keys and rule, changed where they are to differ.
        heads: the heads.
        rows: the rows.
        needs_lse: whether the log-sum-exp is needed, as it is with sinks.
    """
    # 1. The rows; and of the heads, unless a bias is indexed by their number.
    query, key, value, sinks = inputs.query, inputs.key, call.value, inputs.sinks
    assert isinstance(query, Tensor)
    assert isinstance(key, Tensor)
    if len(rows) < inputs.num_queries:
        query = query.index_select(2, rows.to(query.device))
    is_part = len(heads) < inputs.num_heads
    index = torch.tensor(heads, device=query.device)
    if is_part and inputs.bias is None:
        query = query.index_select(1, index)
        key, value = (
            x.index_select(1, index // (inputs.num_heads // x.shape[1])) for x in (key, value)
        )
        sinks = None if sinks is None else sinks[index]

    if call.weights is not None:
        identity = torch.eye(inputs.num_keys, dtype=value.dtype, device=value.device)
        value = torch.cat([value, identity.expand(*value.shape[:2], -1, -1)], dim=-1)

    # 2. Attention. A sink that the kernel does not know takes its share of each row.
    options: dict[str, Any] = {
        "pattern": inputs.pattern,
        "bias": inputs.bias,
        "scale": inputs.scale,
        "positions": inputs.query_positions[rows],
    }
    if not needs_lse:
        output, lse = attend(query, key, value, **options), None
    else:
        output, lse = attend_with_lse(query, key, value, **options)
        if sinks is not None:
            share = torch.sigmoid(lse - sinks.to(lse.dtype)[:, None])
            output = output * share[..., None].to(output.dtype)
    if is_part and inputs.bias is not None:
        output = output.index_select(1, index)
        lse = None if lse is None else lse.index_select(1, index)
    return output, lse


def rows_of(
    tensor: Float[Tensor, "batch heads queries ..."], heads: list[int], rows: Int[Tensor, "rows"]
) -> Float[Tensor, "batch some rows ..."]:
    """Return some rows of some heads of a tensor."""
    if len(rows) < tensor.shape[2]:
        tensor = tensor.index_select(2, rows.to(tensor.device))
    if len(heads) < tensor.shape[1]:
        tensor = tensor.index_select(1, torch.tensor(heads, device=tensor.device))
    return tensor


def with_rows(
    call: KernelCall,
    output: Float[Tensor, "batch some rows value_dim"],
    lse: Float[Tensor, "batch some rows"] | None,
    heads: list[int],
    rows: Int[Tensor, "rows"],
) -> KernelCall:
    """Return a call with other numbers in some rows of some heads.

    All other rows stay bit by bit what they are.
    """
    index = torch.tensor(heads, device=output.device)
    queries = rows.to(output.device)
    return replace(
        call,
        output=put(call.output, output, index, queries),
        lse=None if call.lse is None or lse is None else put(call.lse, lse, index, queries),
    )


def put(
    old: Float[Tensor, "batch heads queries ..."],
    new: Float[Tensor, "batch some rows ..."],
    heads: Int[Tensor, "some"],
    rows: Int[Tensor, "rows"],
) -> Float[Tensor, "batch heads queries ..."]:
    """Return a tensor with other numbers in some rows of some heads."""
    new = new.to(old.dtype)
    if len(heads) < old.shape[1]:
        new = old.index_select(2, rows).index_copy(1, heads, new)
    return old.index_copy(2, rows, new) if len(rows) < old.shape[2] else new
