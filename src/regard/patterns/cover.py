"""How much of a rectangle of pairs is allowed, told without visiting the pairs."""

from enum import IntEnum
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int, Int8
from torch import Tensor


class Cover(IntEnum):
    """Say how much of a rectangle of pairs a pattern allows."""

    NONE = 0
    SOME = 1
    ALL = 2


class Span(NamedTuple):
    """Positions `first` to `last`, both included; the tensors hold many spans at once."""

    first: Int[Tensor, "*spans"]
    last: Int[Tensor, "*spans"]


def as_span(positions: range) -> Span:
    """Return a range of positions as a span of one rectangle."""
    if len(positions) == 0 or positions.step != 1:
        raise ValueError(f"a span must be a range with step 1 that isn't empty, got {positions}")
    return Span(torch.tensor(positions[0], device="cpu"), torch.tensor(positions[-1], device="cpu"))


def codes(
    none: Bool[Tensor, "..."], every: Bool[Tensor, "..."], batch: Int[Tensor, "..."]
) -> Int8[Tensor, "..."]:
    """Return cover codes from where a rectangle is empty and where it is full."""
    found = (1 + every.to(torch.int8)) * ~none
    # Not by torch.broadcast_shapes, which loads a package for symbolic shapes: a second or more.
    return torch.broadcast_tensors(found, batch)[0]
