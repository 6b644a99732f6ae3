"""What a module of `modules` computes, written down in float64 and independent of it."""

import copy
from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.by_hand.modules import HEADS, MEMORY, SCALE, Attention, Inputs


@dataclass(frozen=True)
class Truth:
    """A call.

    Attributes:
        output: of the module, [batch, queries, width].
        weights: that multiply values, [batch, heads, queries, keys].
        heads: outputs of heads, [batch, heads, queries, head_dim].
        scores: before the softmax, masked.
        allowed: the pairs that may be attended to, [batch, queries, keys].
        sides: its query, key and value, [batch, heads, rows, head_dim].
    """

    output: Tensor
    weights: Tensor
    heads: Tensor
    scores: Tensor
    allowed: Tensor
    sides: dict[str, Tensor]


def truth(
    model: Attention,
    given: Inputs,
    *,
    knocked: Collection[tuple[int, int]] = (),
    ablated: int | None = None,
    mean: bool = False,
    part: str = "",
    head: int = 0,
    other: Inputs | None = None,
) -> Truth:
    """Compute a call.

    Args:
        model: the module.
        given: its inputs.
        knocked: pairs of a query and a key, by their tokens, that are masked.
        ablated: a head that returns zeros.
        mean: whether it returns its mean over the queries that are no padding instead.
        part: the part of the call with other inputs that a head gets, if any; see `patch`.
        head: that head.
        other: the other inputs, of the same sizes and masks.
    """
    model.cache = None
    spec, model = model.spec, copy.deepcopy(model).double()
    x = given.x.double()
    tokens = x if given.context is None else given.context.double()
    if given.prefix is not None:
        tokens = torch.cat([given.prefix.double(), tokens], dim=1)
    query, key, value, output_layer = _projected(model, x, tokens)
    batch, _, queries, _ = query.shape
    keys = key.shape[2]
    allowed = torch.ones(batch, queries, keys, dtype=torch.bool)
    if given.allowed is not None:
        allowed = given.allowed.expand(batch, -1, -1).clone()
    bias = torch.zeros(HEADS, queries, keys).double()
    if given.bias is not None:
        bias = given.bias.double()
    masked = torch.zeros(queries, keys, dtype=torch.bool)
    first = keys - queries if spec.is_cached else 0
    for row, column in knocked:
        masked[row - first, column] = True

    # Memory is always allowed.
    extra = 0
    if spec.kind.startswith("memory"):
        memory_key, memory_value = _memory(model)
        extra = memory_key.shape[2]
        front = spec.kind == "memory first"
        key, value = (
            torch.cat(
                [m.expand(batch, -1, -1, -1), t] if front else [t, m.expand(batch, -1, -1, -1)],
                dim=2,
            )
            for m, t in ((memory_key, key), (memory_value, value))
        )
        pads = (extra, 0) if front else (0, extra)
        allowed = torch.nn.functional.pad(allowed, pads, value=True)
        bias = torch.nn.functional.pad(bias, pads)
        masked = torch.nn.functional.pad(masked, pads)

    donor = None if other is None else truth(model, other)
    sides = {"query": query, "key": key, "value": value}
    if donor is not None:
        for name in ("query", "key") if part == "weights" else {part} & {*sides}:
            sides[name] = sides[name].clone()
            sides[name][:, head] = donor.sides[name][:, head]
    query, key, value = sides.values()

    scores = torch.einsum("bhqd,bhkd->bhqk", query, key) * SCALE + bias
    scores = scores.masked_fill(~allowed[:, None], -torch.inf)
    had_keys = allowed.any(dim=-1)[:, None, :, None]
    scores = scores.masked_fill(masked & had_keys, -torch.inf)
    if scores.requires_grad:
        scores.retain_grad()
    weights = scores.softmax(dim=-1).nan_to_num(0.0)
    if spec.kind == "gated":
        weights = weights * model.gate.sigmoid()[:, None, None]
    if spec.kind == "mixed":
        weights = torch.einsum("gh,bhqk->bgqk", model.mix, weights)
    if spec.kind == "top 3":
        kept = weights >= weights.topk(3, dim=-1).values[..., -1:]
        weights = weights * kept
    heads = torch.einsum("bhqk,bhkd->bhqd", weights, value)
    if heads.requires_grad:
        heads.retain_grad()
    replaced = heads
    if donor is not None and part == "output":
        replaced = heads.clone()
        replaced[:, head] = donor.heads[:, head]
    if ablated is not None:
        replaced = heads.clone()
        replaced[:, ablated] = 0.0
        if mean:
            counted = given.real.double()[..., None]
            total = (heads[:, ablated] * counted).sum(dim=1, keepdim=True)
            replaced[:, ablated] = total / counted.sum(dim=1, keepdim=True)
    output = output_layer(replaced.transpose(1, 2).flatten(2))
    return Truth(output, weights, heads, scores, allowed, sides)


def _projected(
    model: Attention, x: Tensor, tokens: Tensor
) -> tuple[Tensor, Tensor, Tensor, torch.nn.Module]:
    """Return queries, keys and values of all heads, and the output projection."""
    if model.spec.kernel == "mha":
        weight, bias = model.mha.in_proj_weight, model.mha.in_proj_bias
        parts = zip((x, tokens, tokens), weight.chunk(3), bias.chunk(3), strict=True)
        query, key, value = (t @ w.T + b for t, w, b in parts)
        projection: torch.nn.Module = model.mha.out_proj
    else:
        query, key, value = model.q_proj(x), model.k_proj(tokens), model.v_proj(tokens)
        projection = model.o_proj
    size = query.shape[-1] // HEADS
    split = [t.unflatten(-1, (-1, size)).transpose(1, 2) for t in (query, key, value)]
    query, key, value = (t.expand(-1, HEADS, -1, -1) if t.shape[1] == 1 else t for t in split)
    return query, key, value, projection


def _memory(model: Attention) -> tuple[Tensor, Tensor]:
    """Return keys and values of the memory, [1, heads, memory, head_dim]."""
    if model.spec.kernel != "mha":
        both = (model.memory_key, model.memory_value)
        return both[0].expand(-1, HEADS, -1, -1), both[1].expand(-1, HEADS, -1, -1)
    assert MEMORY == 2
    size = model.mha.bias_k.shape[-1] // HEADS
    both = [t.view(1, 1, HEADS, size).transpose(1, 2) for t in (model.mha.bias_k, model.mha.bias_v)]
    # A learned key, and one of zeros.
    key, value = (torch.cat([t, torch.zeros_like(t)], dim=2) for t in both)
    return key, value
