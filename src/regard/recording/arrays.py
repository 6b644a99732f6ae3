"""Arrays on disk: how they are cut, compressed, checked and read."""

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import zarr
from numpy.typing import NDArray
from torch import Tensor
from zarr.codecs import BloscCodec, Crc32cCodec

from regard.recording.errors import RecordingError

ROWS = 1024
"""Queries and keys are cut along the sequence into chunks of so many."""

_LARGEST_CHUNK = 2**20
"""How many numbers a chunk of any other array has at most."""

DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}


def create(
    group: zarr.Group,
    name: str,
    shape: Sequence[int],
    dtype: Any,
    chunks: Sequence[int] | None = None,
    *,
    sparse: bool = False,
) -> zarr.Array[Any]:
    """Make an array; one that is there already is written anew.

    Numbers that were never written are NaN, so that a chunk that got lost is noticed.

    Args:
        group: where.
        name: its name.
        shape: its shape.
        dtype: its type.
        chunks: the shape of a chunk; by default some rows of the first axis.
        sparse: whether chunks of NaN alone are left out.
    """
    dtype = np.dtype(dtype)
    if chunks is None:
        row = max(1, math.prod(shape[1:]))
        chunks = (min(shape[0], max(1, _LARGEST_CHUNK // row)), *shape[1:])
    return group.create_array(
        name,
        shape=tuple(shape),
        dtype=dtype,
        chunks=tuple(max(1, size) for size in chunks),
        compressors=[BloscCodec(cname="zstd", clevel=1, shuffle="bitshuffle"), Crc32cCodec()],
        fill_value=np.nan if dtype.kind == "f" else 0,
        config={"write_empty_chunks": not sparse},
        overwrite=True,
    )


def write(
    group: zarr.Group, name: str, values: NDArray[Any], chunks: Sequence[int] | None = None
) -> None:
    """Write an array whole."""
    array = create(group, name, values.shape, values.dtype, chunks)
    if values.size:
        array[...] = values


def read(array: zarr.Array[Any], where: Any = ..., *, orthogonal: bool = False) -> NDArray[Any]:
    """Read a part of an array.

    Args:
        array: the array.
        where: which part.
        orthogonal: whether `where` has the indices along each axis.

    Raises:
        RecordingError: it is damaged, or a part of it is missing.
    """
    try:
        values = np.asarray(array.oindex[where] if orthogonal else array[where])
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise RecordingError(f"{array.path} is damaged: {error}") from error
    if values.dtype.kind == "f" and np.isnan(values).any():
        check_whole(array)
    return values


def check_whole(array: zarr.Array[Any]) -> None:
    """Raise RecordingError if chunks are missing of an array of which all are written."""
    missing = array.nchunks - array.nchunks_initialized
    if missing:
        raise RecordingError(
            f"{array.path} is damaged: {missing} of its {array.nchunks} chunks are missing; "
            "record it again, or copy it again from where it is whole"
        )


def as_numpy(tensor: Tensor) -> NDArray[Any]:
    """Return a tensor as an array; bfloat16, which NumPy has not, as its bits."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()


def as_tensor(values: NDArray[Any], dtype: str | None = None) -> Tensor:
    """Return an array as a tensor.

    Args:
        values: the array.
        dtype: the type that it stands for; bfloat16 is stored as bits.
    """
    values = np.ascontiguousarray(values)
    if not values.flags.writeable:
        values = values.copy()
    if dtype == "bfloat16":
        return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(values)


def stored_dtype(dtype: str) -> np.dtype[Any]:
    """Return the type in which numbers of a type are stored."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)


def digest_of(*arrays: NDArray[Any]) -> str:
    """Return the SHA-256 of arrays, their shapes included."""
    found = hashlib.sha256()
    for values in arrays:
        found.update(f"{values.dtype.str}{values.shape}".encode())
        found.update(np.ascontiguousarray(values).data)
    return found.hexdigest()


def rounded(values: NDArray[np.float32], bits: int = 12) -> NDArray[np.float32]:
    """Round numbers to so many bits after the first, so that they compress; NaN stays.

    The relative error is up to 2^−(bits + 1), 1.2e-4 for 12.
    """
    dropped = 23 - bits
    whole = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    half = np.uint32((1 << (dropped - 1)) - 1) + ((whole >> np.uint32(dropped)) & np.uint32(1))
    kept = (whole + half) & np.uint32(0xFFFFFFFF ^ ((1 << dropped) - 1))
    return np.where(np.isfinite(values), kept.view(np.float32), values).astype(np.float32)
