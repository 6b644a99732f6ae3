"""A soft limit on attention scores."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Softcap:
    """Limit scores to -cap ... cap; see `softcap`."""

    cap: float
    additive = False
    relative = True
    batch_size = None
    num_heads = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.cap) and self.cap > 0):
            raise ValueError(f"cap must be positive and finite, got {self.cap}")

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return ()

    def adjust(
        self,
        scores: Float[Tensor, "*#pairs"],
        batch: Int[Tensor, "*#pairs"],
        head: Int[Tensor, "*#pairs"],
        query: Int[Tensor, "*#pairs"],
        key: Int[Tensor, "*#pairs"],
    ) -> Float[Tensor, "..."]:
        """Return `cap * tanh(scores / cap)`; see `Bias.adjust`."""
        # Round once, at the end.
        exact = torch.promote_types(scores.dtype, torch.float32)
        return (self.cap * torch.tanh(scores.to(exact) / self.cap)).to(scores.dtype)


def softcap(cap: float) -> Softcap:
    """Limit scores smoothly; small ones hardly change.

        score  ->  cap * tanh(score / cap)

    Args:
        cap: the limit, positive and finite; Gemma 2 has 50.

    Raises:
        ValueError: if `cap` is not positive and finite.

    >>> zero = torch.tensor(0)
    >>> softcap(50.0).adjust(torch.tensor([1.0, 50.0, 1000.0]), zero, zero, zero, zero)
    tensor([ 0.9999, 38.0797, 50.0000])
    """
    return Softcap(cap)
