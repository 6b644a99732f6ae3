"""How much of a rectangle of pairs a pattern allows, without visiting the pairs."""

from enum import IntEnum
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int, Int8
from torch import Tensor


class Cover(IntEnum):
    """How much of a rectangle of pairs a pattern allows."""

    NONE = 0
    SOME = 1
    ALL = 2


class Span(NamedTuple):
    """Positions `first` to `last`, both included; the tensors hold many spans at once."""

    first: Int[Tensor, "*spans"]
    last: Int[Tensor, "*spans"]


def as_span(positions: range) -> Span:
    """Return a range of positions as a span."""
    if len(positions) == 0 or positions.step != 1:
        raise ValueError(f"a span must be a non-empty range with step 1, got {positions}")
    return Span(torch.tensor(positions[0], device="cpu"), torch.tensor(positions[-1], device="cpu"))


def codes(
    none: Bool[Tensor, "..."], every: Bool[Tensor, "..."], batch: Int[Tensor, "..."]
) -> Int8[Tensor, "..."]:
    """Return cover codes, given which rectangles are empty and which are full."""
    found = (1 + every.to(torch.int8)) * ~none
    # torch.broadcast_shapes would import symbolic shapes, which takes a second or more.
    return torch.broadcast_tensors(found, batch)[0]
