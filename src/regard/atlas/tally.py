"""Sums over a shard of a corpus, which can be merged."""

import io
import json
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.atlas.examples import Examples

VERSION = 1
_FORMAT = "regard tally"

# NumPy's ArrayLike has no integers at run time, and our tests check types.
Values = NDArray[Any] | np.generic | Sequence[Any] | float | int
"""An array, a list or a number."""

# Exceptions of reading damaged bytes.
_DAMAGE = (
    AttributeError,
    EOFError,
    LookupError,
    NotImplementedError,
    OSError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)


class Tally:
    """Sums over a shard of a corpus, by name, in float64 or int64.

    Attributes:
        sums: by name. Sums that are added with `call` have the axes [calls, heads, ...].
        skipped: counts of skipped items, by reason.
        examples: a few pairs of each head.
        modules: the module of each call, if any.

    >>> tally = Tally()
    >>> tally.add("rows", 3)
    >>> tally.add("first", [0.5, 0.25], call=1)
    >>> tally.sums["first"]
    array([[0.  , 0.  ],
           [0.5 , 0.25]])
    """

    def __init__(self) -> None:
        self.sums: dict[str, NDArray[Any]] = {}
        self.skipped: Counter[str] = Counter()
        self.examples = Examples()
        self.modules: list[str] = []

    def add(self, name: str, values: Values, call: int | None = None) -> None:
        """Add values to a sum.

        Args:
            name: the name of the sum; it begins with zeros.
            values: numbers of any shape; the sum grows along longer axes.
            call: the number of their call: `values` [heads, ...] are added to this row of a sum
                [calls, heads, ...].

        Raises:
            ValueError: the sum has another number of axes, `call` is negative, or the values are
                not numbers.
        """
        added = _as_numbers(name, values)
        if call is None:
            place: tuple[int, ...] = ()
        elif call < 0:
            raise ValueError(f"call must be at least 0, got {call}")
        else:
            place = (call,)
        self._add_at(name, added, place)

    def merge(self, other: "Tally") -> None:
        """Add another tally to this one.

        Raises:
            ValueError: a sum has another number of axes; nothing is added then.
        """
        for name, added in other.sums.items():
            if name in self.sums:
                _check_axes(name, self.sums[name].ndim, added.ndim)
        for name, added in other.sums.items():
            self._add_at(name, added, ())
        self.skipped.update(other.skipped)
        self.examples.merge(other.examples)
        self.modules = self.modules or other.modules

    def to_bytes(self) -> bytes:
        """Return the bytes of an npz archive without pickles."""
        about = {
            "format": _FORMAT,
            "version": VERSION,
            "names": list(self.sums),
            "skipped": dict(self.skipped),
            "examples": self.examples.as_data(),
            "modules": self.modules,
        }
        # By number, because names may be arbitrary, and np.savez has its own arguments.
        arrays: dict[str, Any] = {f"sum{i}": array for i, array in enumerate(self.sums.values())}
        file = io.BytesIO()
        np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Tally":
        """Return the tally of `to_bytes`.

        Raises:
            ValueError: the bytes are damaged, or of a later version.
        """
        return cls._read(data, "the tally")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tally":
        """Return the tally of a file.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is damaged, or of a later version.
        """
        return cls._read(Path(path).read_bytes(), str(path))

    @classmethod
    def _read(cls, data: bytes, name: str) -> "Tally":
        damaged = f"{name} is damaged"
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as archive:
                about = _facts(archive)
                if about["version"] <= VERSION:
                    return cls._made(about, archive)
        except _DAMAGE as error:
            raise ValueError(f"{damaged} ({error}): remove it, and count again") from error
        raise ValueError(
            f"{name} has format version {about['version']}, and this Regard reads up to {VERSION}: "
            "upgrade Regard, or count again"
        )

    @classmethod
    def _made(cls, about: Mapping[str, Any], archive: Mapping[str, NDArray[Any]]) -> "Tally":
        tally = cls()
        for number, name in enumerate(about["names"]):
            tally.sums[name] = _as_numbers(name, archive[f"sum{number}"])
        for reason, count in about["skipped"].items():
            tally.skipped[reason] = int(count)
        tally.examples = Examples.from_data(about["examples"])
        tally.modules = list(about["modules"])
        return tally

    def _add_at(self, name: str, added: NDArray[Any], place: tuple[int, ...]) -> None:
        shape = (*(index + 1 for index in place), *added.shape)
        so_far = self.sums.get(name)
        if so_far is None:
            so_far = np.zeros(shape, added.dtype)
        _check_axes(name, so_far.ndim, len(shape))
        so_far = _grown(so_far, shape, np.result_type(so_far, added))
        so_far[(*place, *(slice(size) for size in added.shape))] += added
        self.sums[name] = so_far


def _as_numbers(name: str, values: Values) -> NDArray[Any]:
    array = np.asarray(values)
    if array.dtype.kind in "biu":
        return array.astype(np.int64)
    if array.dtype.kind == "f":
        return array.astype(np.float64)
    raise ValueError(f"values of {name!r} must be numbers, got {array.dtype}")


def _check_axes(name: str, so_far: int, added: int) -> None:
    if so_far != added:
        raise ValueError(f"values of {name!r} must have {so_far} axes, got {added}")


def _grown(array: NDArray[Any], shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Pad an array with zeros to at least a shape."""
    sizes = tuple(max(pair) for pair in zip(array.shape, shape, strict=True))
    if sizes == array.shape and dtype == array.dtype:
        return array
    larger = np.zeros(sizes, dtype)
    larger[tuple(slice(size) for size in array.shape)] = array
    return larger


def _facts(archive: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the metadata of an archive.

    Raises:
        ValueError: it is not a tally.
    """
    about = json.loads(str(archive["about"]))
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise ValueError(f"its format must be {_FORMAT!r}")
    return about
