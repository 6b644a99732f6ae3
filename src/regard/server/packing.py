"""Pack numbers as deterministic gzip, with rounding for pooled values."""

import zlib

import numpy as np
from numpy.typing import NDArray

from regard.recording.arrays import rounded

_GZIP = 31
"""zlib's `wbits` for gzip without a date."""

_LEVEL = 1
"""Higher levels take four times as long and save 1 %."""


def packed(values: NDArray[np.float32], *, exact: bool) -> bytes:
    """Return values as a gzip of little-endian float32, the same bytes for the same values.

    Args:
        values: an array of any shape; NaN is kept.
        exact: whether to keep all bits. Otherwise 12 bits of the mantissa are kept: a relative
            error of at most 1.3e-4, and half of the bytes.
    """
    kept = values if exact else rounded(values)
    # Exact weights repeat only in runs of NaN; searching for more takes twice as long.
    strategy = zlib.Z_RLE if exact else zlib.Z_DEFAULT_STRATEGY
    packer = zlib.compressobj(_LEVEL, wbits=_GZIP, strategy=strategy)
    data = np.ascontiguousarray(kept, "<f4").tobytes()
    return packer.compress(data) + packer.flush()


def unpacked(body: bytes) -> NDArray[np.float32]:
    """Return packed values as a flat array."""
    return np.frombuffer(zlib.decompress(body, wbits=_GZIP), "<f4")


def shortest(values: NDArray[np.float32]) -> list[float]:
    """Return floats with the fewest digits that round-trip as float32.

    >>> shortest(np.array([0.1, 1 / 3], dtype=np.float32))
    [0.1, 0.33333334]
    """
    return [float(str(value)) for value in np.asarray(values, np.float32)]
