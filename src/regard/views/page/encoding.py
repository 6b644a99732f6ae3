"""Compact encoding of edges and maps; see `web/README.md`."""

import base64
import zlib
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from regard.views.page.strongest import Strongest

MOST_TOKENS = 32_000
"""Longest text whose keys fit 16-bit codes."""

ZERO_EFFECT = 32_768
"""The code of no effect; each step up or down is 1 / 32,767 of the largest."""

FIRST_KEYS = 4
"""Number of initial keys with their own codes: many heads attend to them from everywhere."""


def edges(
    strongest: Sequence[Strongest], *, floor: float, weight_bits: int, largest: float | None = None
) -> bytes:
    """Encode the edges of some heads.

    Args:
        strongest: the strongest keys of each head.
        floor: the smallest stored weight.
        weight_bits: 8 or 16 bits for a weight.
        largest: the largest effect by size; None for weights. Effects have 16 bits.
    """
    return b"".join(
        _section(keys, weights, floor, weight_bits, largest)
        for some in strongest
        for keys, weights in zip(some.keys.numpy(), some.weights.numpy(), strict=True)
    )


def _section(
    keys: "np.ndarray[tuple[int, int], np.dtype[np.int32]]",
    weights: "np.ndarray[tuple[int, int], np.dtype[np.float32]]",
    floor: float,
    weight_bits: int,
    largest: float | None,
) -> bytes:
    """Encode the edges of a head, all strongest ones first, which compresses well."""
    there = (keys >= 0) & (np.abs(weights) >= floor)
    counts = there.sum(axis=1).astype(np.uint8)
    back = np.arange(len(keys))[:, None] - keys
    zigzag = np.where(back >= 0, 2 * back, -2 * back - 1)
    codes = np.where(keys < FIRST_KEYS, 0xFFFF - keys, zigzag).T[there.T]
    exact = in_steps(weights.T[there.T], weight_bits, largest)
    # What is not 0 is never stored as 0.
    steps = np.where(np.abs(exact) < 1.0, np.where(exact < 0.0, -1.0, 1.0), np.rint(exact))
    steps = (steps + (0 if largest is None else ZERO_EFFECT)).astype(np.uint16)
    written = [steps] if weight_bits == 8 else [steps & 0xFF, steps >> 8]
    planes = [counts, codes & 0xFF, codes >> 8, *written]
    return b"".join(plane.astype(np.uint8).tobytes() for plane in planes)


def in_steps(
    weights: "np.ndarray[tuple[int], np.dtype[np.float32]]",
    weight_bits: int,
    largest: float | None = None,
) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Return weights, or effects up to the largest, in quantisation steps, not yet rounded."""
    if largest is not None:
        return (ZERO_EFFECT - 1) * (weights.astype(np.float64) / largest)
    shares = np.clip(weights.astype(np.float64), 0.0, 1.0)
    return 255 * np.sqrt(shares) if weight_bits == 8 else 65535 * shares


def maps(found: Sequence[Tensor]) -> bytes:
    """Encode the maps of all layers: their heads, then their mean, each normalised.

    Args:
        found: the maps of each layer, [heads, rows, columns].
    """
    parts: list[bytes] = []
    for heads in found:
        for cells in (*heads.numpy(), heads.mean(dim=0).numpy()):
            cells = np.nan_to_num(cells)
            brightness = np.sqrt(cells / max(float(cells.max(initial=0.0)), 1e-12))
            parts.append(np.rint(255 * brightness).astype(np.uint8).tobytes())
    return b"".join(parts)


def effect_maps(found: Sequence[Tensor]) -> bytes:
    """Encode the maps of all layers: their heads, then their sum; 128 is no effect.

    Heads are normalised together, so that those without an effect are seen to have none, and so are
    sums.

    Args:
        found: the maps of each layer, [heads, rows, columns].
    """
    found = [heads.nan_to_num() for heads in found]
    of_heads = max(float(heads.abs().max()) for heads in found)
    of_sums = max(float(heads.sum(dim=0).abs().max()) for heads in found)
    parts: list[bytes] = []
    for heads in found:
        for cells, most in ((heads, of_heads), (heads.sum(dim=0), of_sums)):
            shares = cells.numpy() / max(most, 1e-30)
            steps = np.rint(127 * np.sign(shares) * np.sqrt(np.abs(shares)))
            parts.append((128 + steps).astype(np.uint8).tobytes())
    return b"".join(parts)


def packed(data: bytes) -> str:
    """Compress bytes and encode them as text."""
    return base64.b64encode(zlib.compress(data, 9)).decode("ascii")
