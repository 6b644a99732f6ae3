"""Arrays on disk: chunks, compression, checksums.

Zarr writes them. We read them without it, because Zarr obeys any codec, type and size that a file
declares, and only those that Regard writes are allowed.
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
"""Tokens per chunk of queries and keys."""

LINE = 65536
"""Tokens per chunk of arrays with one number per head and token."""

_LARGEST_CHUNK = 2**20
"""Maximum numbers in a chunk of any other array."""

DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}

Where = int | slice | NDArray[np.int64]
"""An index along an axis."""

_CODEC = {"cname": "zstd", "clevel": 1, "shuffle": "bitshuffle"}
_BLOSC_HEADER, _CRC = 16, 4
_BLOSC_ZSTD = 4
"""The code of Zstandard in the header of a chunk."""


@dataclass(frozen=True)
class ArraySpec:
    """The shape, dtype and chunks of an array, which define its Zarr metadata.

    Attributes:
        shape: its shape.
        dtype: the name of its dtype.
        chunks: the shape of a chunk.
    """

    shape: tuple[int, ...]
    dtype: str
    chunks: tuple[int, ...]

    @classmethod
    def of(
        cls, shape: Sequence[int], dtype: str, chunks: Sequence[int] | None = None
    ) -> "ArraySpec":
        """Return a spec, by default with chunks along the first axis."""
        if chunks is None:
            row = max(1, math.prod(shape[1:]))
            chunks = (min(shape[0], max(1, _LARGEST_CHUNK // row)), *shape[1:])
        return cls(tuple(shape), dtype, tuple(max(1, size) for size in chunks))

    @classmethod
    def of_values(cls, values: NDArray[Any]) -> "ArraySpec":
        """Return the spec of an array in memory."""
        return cls.of(values.shape, values.dtype.name)

    @property
    def grid(self) -> tuple[int, ...]:
        """The number of chunks along each axis."""
        return tuple(-(-size // of) for size, of in zip(self.shape, self.chunks, strict=True))

    @property
    def chunk_bytes(self) -> int:
        """The size of a chunk in bytes."""
        return math.prod(self.chunks) * np.dtype(self.dtype).itemsize

    @property
    def fill_value(self) -> float:
        """The value of chunks that were not written."""
        return math.nan if np.dtype(self.dtype).kind == "f" else 0

    def metadata(self) -> dict[str, Any]:
        """Return its Zarr metadata."""
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
    """Create an array, or replace it.

    Args:
        group: its group.
        name: its name.
        spec: its shape, dtype and chunks.
        sparse: whether to omit chunks of NaN.
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


def created(group: zarr.Group, name: str, *, sparse: bool = False) -> zarr.Array[Any]:
    """Return an array that was created, to write a part of it; arguments as for `create`."""
    array = group[name]
    assert isinstance(array, zarr.Array)
    return array.with_config({"write_empty_chunks": not sparse})


def write(
    group: zarr.Group, name: str, values: NDArray[Any], spec: ArraySpec | None = None
) -> None:
    """Write a whole array, by default with chunks along the first axis."""
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
        path: its path in the recording.
        spec: its shape, dtype and chunks.
        sparse: whether missing chunks are NaN.
    """

    files: Files
    path: str
    spec: ArraySpec
    sparse: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return self.spec.shape

    def read(self, *where: Where) -> NDArray[Any]:
        """Read a part, from the chunks that it needs.

        Args:
            where: an index for each axis; by default all of it.

        Raises:
            RecordingError: it is damaged, or a chunk is missing.
        """
        axes = [*where, *(slice(None) for _ in self.shape[len(where) :])]
        places = [_places(one, size) for one, size in zip(axes, self.shape, strict=True)]
        try:
            found = np.full([len(one) for one in places], self.spec.fill_value, self.spec.dtype)
        except MemoryError as error:
            raise RecordingError(f"{self.path} is too large for the memory: {error}") from error
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
                "copy it again, or record it again"
            )
        try:
            decoded = _decoded(data, size)
        except (ValueError, RuntimeError) as error:
            raise RecordingError(f"{self.path} is damaged: {name}: {error}") from error
        return np.frombuffer(decoded, np.dtype(self.spec.dtype).newbyteorder("<")).reshape(
            self.spec.chunks
        )


def _places(where: Where, size: int) -> range | NDArray[np.int64]:
    if isinstance(where, int):
        where = slice(where, where + 1)
    if isinstance(where, slice):
        return range(size)[where]
    return np.arange(size)[where]


_Places = slice | NDArray[np.int64]
"""Some indices along an axis: a slice if they are consecutive, which needs no copy."""


def _by_chunk(
    places: range | NDArray[np.int64], size: int
) -> Iterator[tuple[int, _Places, _Places]]:
    """Yield chunk numbers, the indices that are in each, and their offsets in the chunk."""
    if isinstance(places, range) and places.step == 1:
        for number in range(places.start // size, -(-places.stop // size)):
            first = max(places.start, number * size)
            stop = min(places.stop, (number + 1) * size)
            if first < stop:
                among = slice(first - places.start, stop - places.start)
                yield number, among, slice(first - number * size, stop - number * size)
        return
    places = np.asarray(places)
    numbers = places // size
    for number in np.unique(numbers).tolist():
        among = np.flatnonzero(numbers == number)
        yield number, among, places[among] - number * size


def _rectangle(places: Sequence[_Places]) -> Any:
    """Return the index of a rectangle."""
    if all(isinstance(one, slice) for one in places):
        return tuple(places)
    return np.ix_(*(np.r_[one] if isinstance(one, slice) else one for one in places))


def _decoded(data: bytes, size: int) -> bytes:
    """Decode a chunk of `size` bytes; its size is checked first."""
    body, crc = data[:-_CRC], data[-_CRC:]
    if len(body) < _BLOSC_HEADER:
        raise ValueError(f"{len(data)} bytes are too few")
    if google_crc32c.value(body).to_bytes(4, "little") != crc:
        raise ValueError("the checksum does not match")
    version, _, flags, _ = body[:4]
    holds, _, takes = (int.from_bytes(body[at : at + 4], "little") for at in (4, 8, 12))
    if version != 2 or flags >> 5 != _BLOSC_ZSTD:
        raise ValueError("the compression is not Regard's")
    if (holds, takes) != (size, len(body)):
        raise ValueError(
            f"the header must declare {size:,} bytes in {len(body):,}, got {holds:,} in {takes:,}"
        )
    decoded: bytes = numcodecs.blosc.decompress(body)
    return decoded


def as_numpy(tensor: Tensor) -> NDArray[Any]:
    """Convert a tensor to an array; bfloat16, which NumPy lacks, as its bits."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()


def as_tensor(values: NDArray[Any], dtype: str | None = None) -> Tensor:
    """Convert an array to a tensor.

    Args:
        values: the array.
        dtype: the dtype of the tensor; bfloat16 is stored as bits.
    """
    values = np.ascontiguousarray(values)
    if not values.flags.writeable:
        values = values.copy()
    if dtype == "bfloat16":
        return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(values)


def stored_dtype(dtype: str) -> np.dtype[Any]:
    """Return the NumPy dtype that stores a torch dtype."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)


def sha256_of(*arrays: NDArray[Any]) -> str:
    """Return the SHA-256 of arrays and their shapes."""
    found = hashlib.sha256()
    for values in arrays:
        found.update(f"{values.dtype.str}{values.shape}".encode())
        found.update(np.ascontiguousarray(values).data)
    return found.hexdigest()


def rounded(values: NDArray[np.float32], bits: int = 12) -> NDArray[np.float32]:
    """Round mantissas to `bits` bits, so that numbers compress; NaN stays NaN.

    The relative error is at most 2^−(bits + 1): 1.2e-4 for 12 bits.
    """
    dropped = 23 - bits
    whole = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    half = np.uint32((1 << (dropped - 1)) - 1) + ((whole >> np.uint32(dropped)) & np.uint32(1))
    kept = (whole + half) & np.uint32(0xFFFFFFFF ^ ((1 << dropped) - 1))
    return np.where(np.isfinite(values), kept.view(np.float32), values).astype(np.float32)
