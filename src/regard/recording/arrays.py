"""Arrays on disk: how they are cut, compressed, checked and read.

They are written by Zarr. They are read without it, because it would follow whatever codecs, types
and sizes a file declares, and only those are read that are written here.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import google_crc32c
import numcodecs.blosc
import numpy as np
import torch
import zarr
from numpy.typing import NDArray
from torch import Tensor
from zarr.codecs import BloscCodec, Crc32cCodec

from regard.recording.errors import RecordingError
from regard.recording.files import Files

ROWS = 1024
"""Queries and keys are cut along the sequence into chunks of so many."""

LINE = 65536
"""Numbers of a head for each token are cut into chunks of so many."""

_LARGEST_CHUNK = 2**20
"""How many numbers a chunk of any other array has at most."""

DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}

Where = int | slice | NDArray[np.int64]
"""Places along an axis."""

_CODEC = {"cname": "zstd", "clevel": 1, "shuffle": "bitshuffle"}
_BLOSC_HEADER, _CRC = 16, 4
_BLOSC_ZSTD = 4
"""What the header of a chunk says that is compressed with Zstandard."""


@dataclass(frozen=True)
class ArraySpec:
    """What an array is, from which all of its metadata follow.

    Attributes:
        shape: its shape.
        dtype: the name of its type.
        chunks: the shape of a chunk.
    """

    shape: tuple[int, ...]
    dtype: str
    chunks: tuple[int, ...]

    @classmethod
    def of(
        cls, shape: Sequence[int], dtype: str, chunks: Sequence[int] | None = None
    ) -> "ArraySpec":
        """Return the spec of an array, by default in chunks of some rows of the first axis."""
        if chunks is None:
            row = max(1, math.prod(shape[1:]))
            chunks = (min(shape[0], max(1, _LARGEST_CHUNK // row)), *shape[1:])
        return cls(tuple(shape), dtype, tuple(max(1, size) for size in chunks))

    @classmethod
    def of_values(cls, values: NDArray[Any]) -> "ArraySpec":
        """Return the spec of an array in memory."""
        return cls.of(values.shape, values.dtype.name)

    @property
    def chunk_bytes(self) -> int:
        """The size of a chunk."""
        return math.prod(self.chunks) * np.dtype(self.dtype).itemsize

    @property
    def fill_value(self) -> float:
        """What stands where nothing was written."""
        return math.nan if np.dtype(self.dtype).kind == "f" else 0

    def metadata(self) -> dict[str, Any]:
        """Return what Zarr writes of it."""
        dtype = np.dtype(self.dtype)
        fill = {"f": "NaN", "b": False}.get(dtype.kind, 0)
        bytes_codec: dict[str, Any] = {"name": "bytes"}
        if dtype.itemsize > 1:
            bytes_codec["configuration"] = {"endian": "little"}
        blosc = {"typesize": dtype.itemsize, **_CODEC, "blocksize": 0}
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(self.shape),
            "data_type": self.dtype,
            "chunk_grid": {
                "name": "regular",
                "configuration": {"chunk_shape": list(self.chunks)},
            },
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": fill,
            "codecs": [
                bytes_codec,
                {"name": "blosc", "configuration": blosc},
                {"name": "crc32c"},
            ],
            "attributes": {},
            "storage_transformers": [],
        }


def create(
    group: zarr.Group, name: str, spec: ArraySpec, *, sparse: bool = False
) -> zarr.Array[Any]:
    """Make an array; one that is there already is written anew.

    Args:
        group: where.
        name: its name.
        spec: what it is.
        sparse: whether chunks of NaN alone are left out.
    """
    return group.create_array(
        name,
        shape=spec.shape,
        dtype=np.dtype(spec.dtype),
        chunks=spec.chunks,
        compressors=[
            BloscCodec(cname="zstd", clevel=1, shuffle="bitshuffle"),
            Crc32cCodec(),
        ],
        fill_value=spec.fill_value,
        config={"write_empty_chunks": not sparse},
        overwrite=True,
    )


def write(
    group: zarr.Group, name: str, values: NDArray[Any], spec: ArraySpec | None = None
) -> None:
    """Write an array whole, by default in chunks of some rows."""
    spec = ArraySpec.of_values(values) if spec is None else spec
    assert (spec.shape, spec.dtype) == (values.shape, values.dtype.name), name
    array = create(group, name, spec)
    if values.size:
        array[...] = values


@dataclass(frozen=True, eq=False)
class StoredArray:
    """An array of a recording.

    Attributes:
        files: the files of the recording.
        path: where it is in them.
        spec: what it is.
        sparse: whether chunks that were not written are NaN.
    """

    files: Files
    path: str
    spec: ArraySpec
    sparse: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.spec.shape

    def read(self, *where: Where) -> NDArray[Any]:
        """Read the chunks that a part needs.

        Args:
            where: which places along each axis; all along those that are left out.

        Raises:
            RecordingError: it is damaged, or a part of it is missing.
        """
        axes = [*where, *(slice(None) for _ in self.shape[len(where) :])]
        places = [_places(one, size) for one, size in zip(axes, self.shape, strict=True)]
        found = np.full([len(one) for one in places], self.spec.fill_value, self.spec.dtype)
        parts = [
            list(_by_chunk(one, size)) for one, size in zip(places, self.spec.chunks, strict=True)
        ]
        for combination in product(*parts):
            numbers, into, out_of = zip(*combination, strict=True)
            chunk = self._chunk(numbers)
            if chunk is not None:
                found[_rectangle(into)] = chunk[_rectangle(out_of)]
        kept = tuple(0 if isinstance(one, int) else slice(None) for one in axes)
        return found[kept]

    def _chunk(self, numbers: Sequence[int]) -> NDArray[Any] | None:
        name = "/".join([self.path, "c", *map(str, numbers)])
        size = self.spec.chunk_bytes
        data = self.files.read(self.path, name, size + _BLOSC_HEADER + _CRC)
        if data is None:
            if self.sparse:
                return None
            raise RecordingError(
                f"{self.path} is damaged: its chunk {'/'.join(map(str, numbers))} is missing; "
                "record it again, or copy it again from where it is whole"
            )
        try:
            decoded = _decoded(data, size)
        except (ValueError, RuntimeError) as error:
            raise RecordingError(f"{self.path} is damaged: {name}: {error}") from error
        return np.frombuffer(decoded, np.dtype(self.spec.dtype).newbyteorder("<")).reshape(
            self.spec.chunks
        )


def _places(where: Where, size: int) -> NDArray[np.int64]:
    if isinstance(where, int):
        where = slice(where, where + 1)
    return np.arange(size)[where]


def _by_chunk(
    places: NDArray[np.int64], size: int
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the chunks that places lie in, which of the places, and where in the chunk they are."""
    numbers = places // size
    for number in np.unique(numbers).tolist():
        among = np.flatnonzero(numbers == number)
        yield number, among, places[among] - number * size


def _rectangle(places: Sequence[NDArray[np.int64]]) -> Any:
    """Return the index of a rectangle: slices, which need no copy, if all places are in a row."""
    if all(len(one) == one[-1] - one[0] + 1 and bool((np.diff(one) == 1).all()) for one in places):
        return tuple(slice(one[0], one[-1] + 1) for one in places)
    return np.ix_(*places)


def _decoded(data: bytes, size: int) -> bytes:
    """Return what a chunk holds: so many bytes, known before any is decoded."""
    body, crc = data[:-_CRC], data[-_CRC:]
    if len(body) < _BLOSC_HEADER:
        raise ValueError(f"it has {len(data)} bytes")
    if google_crc32c.value(body).to_bytes(4, "little") != crc:
        raise ValueError("its checksum does not match")
    version, _, flags, _ = body[:4]
    holds, _, takes = (int.from_bytes(body[at : at + 4], "little") for at in (4, 8, 12))
    if version != 2 or flags >> 5 != _BLOSC_ZSTD:
        raise ValueError("it is not compressed as Regard does")
    if (holds, takes) != (size, len(body)):
        raise ValueError(
            f"it must hold {size:,} bytes in {len(body):,}, got {holds:,} in {takes:,}"
        )
    decoded: bytes = numcodecs.blosc.decompress(body)
    return decoded


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


def sha256_of(*arrays: NDArray[Any]) -> str:
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
