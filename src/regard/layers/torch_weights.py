"""Conversion of the weights of `torch.nn.MultiheadAttention`.

PyTorch keeps the query, key and value projections in one matrix, or in three if keys have another
input size, and their biases always in one vector.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

_PARTS = ("query", "key", "value")


def from_torch(module: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    """Rename PyTorch's weights in a state dict: a hook for `register_load_state_dict_pre_hook`."""

    def take(name: str) -> Tensor | None:
        return state.pop(prefix + name, None)

    if (joined := take("in_proj_weight")) is not None:
        _put(state, prefix, "weight", joined)
    for part in _PARTS:
        if (weight := take(f"{part[0]}_proj_weight")) is not None:
            state[f"{prefix}{part}.weight"] = weight
    if (joined := take("in_proj_bias")) is not None:
        _put(state, prefix, "bias", joined)
    for kind in ("weight", "bias"):
        if (output := take(f"out_proj.{kind}")) is not None:
            state[f"{prefix}output.{kind}"] = output


def to_torch(state: Mapping[str, Tensor], num_heads: int, num_key_heads: int) -> dict[str, Tensor]:
    """Return our weights under PyTorch's names; raise ValueError if its layer can't have them."""
    weights = [state[f"{part}.weight"] for part in _PARTS]
    model_dim = weights[0].shape[1]
    if num_key_heads != num_heads:
        raise ValueError(
            "torch.nn.MultiheadAttention has no grouped queries: num_key_heads must be num_heads "
            f"({num_heads}), got {num_key_heads}"
        )
    for part, weight in zip(_PARTS, weights, strict=True):
        if weight.shape[0] != model_dim:
            raise ValueError(
                "the head sizes of torch.nn.MultiheadAttention sum to model_dim: those of the "
                f"{part} heads must sum to {model_dim}, got {weight.shape[0]}"
            )
    if ("query.bias" in state) != ("output.bias" in state):
        raise ValueError(
            "torch.nn.MultiheadAttention has all biases or none: output_bias must be "
            f"projection_bias ({'query.bias' in state}), got {'output.bias' in state}"
        )
    found: dict[str, Tensor] = {}
    if weights[1].shape[1] == model_dim:
        found["in_proj_weight"] = torch.cat(weights)
    else:
        for part, weight in zip(_PARTS, weights, strict=True):
            found[f"{part[0]}_proj_weight"] = weight.clone()
    if "query.bias" in state:
        found["in_proj_bias"] = torch.cat([state[f"{part}.bias"] for part in _PARTS])
        found["out_proj.bias"] = state["output.bias"].clone()
    found["out_proj.weight"] = state["output.weight"].clone()
    return found


def _put(state: dict[str, Any], prefix: str, kind: str, joined: Tensor) -> None:
    for part, piece in zip(_PARTS, joined.chunk(3), strict=True):
        state[f"{prefix}{part}.{kind}"] = piece
