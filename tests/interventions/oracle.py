"""Attention written out, with pairs masked by −inf or weighed anew, and heads set to zero."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

NAME = "oracle"


@dataclass(frozen=True)
class Oracle:
    """What is taken away from a model that runs on the attention of this file, without a cache.

    Attributes:
        model: the model.
        forbids: says of the positions of a query and a key, as tensors, whether the pair is
            forbidden; of tensors [batch, 1, 1, 1], [queries, 1] and [keys].
        factor: multiplies the weights of these pairs instead; rows are divided by their sums.
        share: or is what they have of each row, if they have less.
        layers: the paths of the modules to which that applies.
        heads: the heads of these; None for all.
        ablated: pairs of a module's path and a head that returns zeros, or a mean if `mean`.
        mean: whether an ablated head returns its mean over all positions.
    """

    model: nn.Module
    forbids: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None
    layers: Collection[str] = ()
    heads: Collection[int] | None = None
    ablated: Collection[tuple[str, int]] = ()
    mean: bool = False
    factor: float | None = None
    share: float | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let models that have "oracle" for their attention run on it."""
        names = {module: name for name, module in self.model.named_modules()}

        def attention(module: nn.Module, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
            return self._attention(names[module], module, *args, **options)

        AttentionInterface._global_mapping[NAME] = attention
        AttentionMaskInterface._global_mapping[NAME] = eager_mask
        try:
            yield
        finally:
            del AttentionInterface._global_mapping[NAME]
            del AttentionMaskInterface._global_mapping[NAME]

    def _attention(
        self,
        name: str,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        scaling: float | None = None,
        dropout: float = 0.0,
        softcap: float | None = None,
        s_aux: Tensor | None = None,
        position_bias: Tensor | None = None,
        **others: Any,
    ) -> tuple[Tensor, Tensor]:
        group = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
        scores = query @ key.mT * (query.shape[-1] ** -0.5 if scaling is None else scaling)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        if position_bias is not None:
            scores = scores + position_bias
        if mask is not None:
            scores = scores + mask[..., : key.shape[2]]
        lowest = torch.finfo(scores.dtype).min / 2
        looks = (scores > lowest).any(dim=-1, keepdim=True)
        masks = self.factor is None and self.share is None
        changes = self.forbids is not None and name in self.layers
        if changes and masks:
            # A row of padding, in which nothing is to be seen, stays what it is.
            scores = scores.masked_fill(self._forbidden(scores) & looks, -torch.inf)
        # Who may look at nothing any more gets zeros, and not what masks by large numbers leave.
        empty = looks & ~(scores > lowest).any(dim=-1, keepdim=True)
        scores = scores.masked_fill(empty, 0.0)
        if s_aux is not None:
            sinks = s_aux[:, None, None].expand(*scores.shape[:3], 1).to(scores.dtype)
            scores = torch.cat([scores, sinks], dim=-1)
        weights = scores.softmax(dim=-1)
        if changes and not masks:
            pairs = F.pad(
                self._forbidden(scores[..., : key.shape[2]]), (0, scores.shape[-1] - key.shape[2])
            )
            weights = self._weighed(weights, pairs.expand_as(weights) & looks)
        weights = weights[..., : key.shape[2]].masked_fill(empty, 0.0)
        output = weights @ value
        for head in [head for layer, head in self.ablated if layer == name]:
            mean = output[:, head].mean(dim=1, keepdim=True)
            output = output.clone()
            output[:, head] = mean if self.mean else 0.0
        return output.transpose(1, 2).contiguous(), weights

    def _weighed(self, weights: Tensor, pairs: Tensor) -> Tensor:
        """Return weights, those of sinks last, of which the pairs have another part."""
        if self.share is None:
            assert self.factor is not None
            weights = torch.where(pairs, weights * self.factor, weights)
            return weights / weights.sum(dim=-1, keepdim=True)
        part = (weights * pairs).sum(dim=-1, keepdim=True)
        scaled = torch.where(pairs, self.share / part, (1 - self.share) / (1 - part))
        return torch.where((part > 0) & (part < self.share), weights * scaled, weights)

    def _forbidden(self, scores: Tensor) -> Tensor:
        assert self.forbids is not None
        batch, heads, queries, keys = scores.shape
        chosen = torch.zeros(heads, dtype=torch.bool)
        chosen[list(range(heads) if self.heads is None else self.heads)] = True
        pairs = self.forbids(
            torch.arange(batch)[:, None, None, None],
            torch.arange(queries)[:, None],
            torch.arange(keys),
        )
        return pairs & chosen[:, None, None]


def with_oracle(model: Any) -> Any:
    """Let a model ask for the attention of this file."""
    for module in model.modules():
        config = getattr(module, "config", None)
        if config is not None:
            config._attn_implementation_internal = NAME
    return model
