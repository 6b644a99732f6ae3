"""Compact encoding of edges and maps; see `web/README.md`."""

import base64
import zlib
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from regard.views.page.strongest import Strongest

MOST_TOKENS = 32_000
"""Longest text whose keys fit 16-bit codes."""

FIRST_KEYS = 4
"""Number of initial keys with their own codes: many heads attend to them from everywhere."""


def edges(strongest: Sequence[Strongest], *, floor: float, weight_bits: int) -> bytes:
    """Encode the edges of some heads.

    Args:
        strongest: the strongest keys of each head.
        floor: the smallest stored weight.
        weight_bits: 8 or 16 bits for a weight.
    """
    return b"".join(
        _section(keys, weights, floor, weight_bits)
        for some in strongest
        for keys, weights in zip(some.keys.numpy(), some.weights.numpy(), strict=True)
    )


def _section(
    keys: "np.ndarray[tuple[int, int], np.dtype[np.int32]]",
    weights: "np.ndarray[tuple[int, int], np.dtype[np.float32]]",
    floor: float,
    weight_bits: int,
) -> bytes:
    """Encode the edges of a head, all strongest ones first, which compresses well."""
    there = (keys >= 0) & (weights >= floor)
    counts = there.sum(axis=1).astype(np.uint8)
    back = np.arange(len(keys))[:, None] - keys
    zigzag = np.where(back >= 0, 2 * back, -2 * back - 1)
    codes = np.where(keys < FIRST_KEYS, 0xFFFF - keys, zigzag).T[there.T]
    # A positive weight is never stored as 0.
    steps = np.maximum(1, np.rint(in_steps(weights.T[there.T], weight_bits))).astype(np.uint16)
    written = [steps] if weight_bits == 8 else [steps & 0xFF, steps >> 8]
    planes = [counts, codes & 0xFF, codes >> 8, *written]
    return b"".join(plane.astype(np.uint8).tobytes() for plane in planes)


def in_steps(
    weights: "np.ndarray[tuple[int], np.dtype[np.float32]]", weight_bits: int
) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Return weights in quantisation steps, not yet rounded."""
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


def packed(data: bytes) -> str:
    """Compress bytes and encode them as text."""
    return base64.b64encode(zlib.compress(data, 9)).decode("ascii")
