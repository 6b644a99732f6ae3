"""Attention as transformers wants it, right and wrong."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface


def plain(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """Compute attention as transformers wants it."""
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    scores = query @ key.mT * options["scaling"]
    if mask is None:
        looks_back = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        mask = looks_back if module.is_causal else torch.ones_like(looks_back)
    # Rows of padding may look at nothing.
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1).nan_to_num(0.0)
    return (weights @ value).transpose(1, 2), None


def scaled_differently(*arguments: Any, **options: Any) -> Any:
    return plain(*arguments, **{**options, "scaling": 1.5 * options["scaling"]})


def of_one_layer(wrong: Callable[..., Any], layer: int) -> Callable[..., Any]:
    def attention(module: Any, *arguments: Any, **options: Any) -> Any:
        return (wrong if module.layer_idx == layer else plain)(module, *arguments, **options)

    return attention


class AlikeValues(nn.Module):
    """Calls transformers' attention as its models do, with values that are all alike."""

    is_causal = True

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        found = AttentionInterface().get_interface(self.name, plain)
        return found(self, x, x, torch.full_like(x, -7.0), None, scaling=1.0)[0]
