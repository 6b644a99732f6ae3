"""A reduction of each kind."""

from typing import Any

import torch

from regard.matrix import (
    Distance,
    Edges,
    EffectiveKeys,
    Entropy,
    Hits,
    Mass,
    Offsets,
    Pool,
    Received,
    TopKeys,
)
from regard.patterns import strided, window


def every_reduction(num_keys: int) -> list[Any]:
    """Return a reduction of each kind."""
    stops = torch.arange(num_keys) % 3 == 0
    return [
        Entropy(),
        EffectiveKeys(),
        Received(),
        Offsets(2),
        Distance(),
        Pool(7),
        Pool(7, "max"),
        TopKeys(2),
        Edges(0.1),
        Mass({"stops": stops, "near": window(2)}),
        Hits(strided(3)),
    ]
