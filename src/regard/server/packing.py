"""Numbers as bytes: rounded where that loses nothing that can be seen, packed, always the same."""

import zlib

import numpy as np
from numpy.typing import NDArray

from regard.recording.arrays import rounded

_GZIP = 31
"""What zlib calls its largest window in the format of gzip, without a date."""

_LEVEL = 1
"""Harder takes four times as long and saves a hundredth."""


def packed(values: NDArray[np.float32], *, exact: bool) -> bytes:
    """Return values as a gzip of little-endian float32, the same bytes for the same values.

    Args:
        values: what to pack, of any shape; NaN is kept.
        exact: keep all bits, as where a value is one weight. Otherwise 12 bits of the mantissa are
            kept: values are within 1.3e-4 of themselves, and take half of the bytes.
    """
    kept = values if exact else rounded(values)
    # Exact weights hardly repeat but for stretches of NaN: to look for more takes twice as long.
    strategy = zlib.Z_RLE if exact else zlib.Z_DEFAULT_STRATEGY
    packer = zlib.compressobj(_LEVEL, wbits=_GZIP, strategy=strategy)
    data = np.ascontiguousarray(kept, "<f4").tobytes()
    return packer.compress(data) + packer.flush()


def unpacked(body: bytes) -> NDArray[np.float32]:
    """Return the values that were packed, in a row."""
    return np.frombuffer(zlib.decompress(body, wbits=_GZIP), "<f4")


def shortest(values: NDArray[np.float32]) -> list[float]:
    """Return numbers that are written with as few digits as tell them apart as float32.

    >>> shortest(np.array([0.1, 1 / 3], dtype=np.float32))
    [0.1, 0.33333334]
    """
    return [float(str(value)) for value in np.asarray(values, np.float32)]
