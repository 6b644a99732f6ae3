"""Sums over a part of a corpus, to be added to those over other parts."""

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

# NumPy's own ArrayLike has no integers at run time, by whose checks our tests are run.
Values = NDArray[Any] | np.generic | Sequence[Any] | float | int
"""Numbers: an array, a list, or one alone."""

# What reading bytes may raise that are not those of a tally, or no longer.
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
    """Sums over a part of a corpus: what was counted, by name, in float64 or int64.

    Attributes:
        sums: by name. What was added with `call` has the axes [calls, heads, ...].
        skipped: how often something was left out, by the reason.
        examples: a few of what each head looks at.
        modules: the module of each call, if any was made.

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
            name: of the sum; it begins with zeros.
            values: numbers of any shape. An axis that is longer than what was summed up so far
                makes the sum grow.
            call: the number of the call of attention that they belong to: `values` [heads, ...] go
                to this row of a sum [calls, heads, ...].

        Raises:
            ValueError: the sum has another number of axes, `call` is below 0, or the values are no
                numbers.
        """
        added = _as_numbers(name, values)
        if call is None:
            place: tuple[int, ...] = ()
        elif call < 0:
            raise ValueError(f"call must be at least 0, got {call}: count calls from the first one")
        else:
            place = (call,)
        self._add_at(name, added, place)

    def merge(self, other: "Tally") -> None:
        """Add all of another tally to this one, by name.

        Raises:
            ValueError: a sum has another number of axes there; nothing has been added then.
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
        """Return the tally as the bytes of a file, an npz archive without pickles."""
        about = {
            "format": _FORMAT,
            "version": VERSION,
            "names": list(self.sums),
            "skipped": dict(self.skipped),
            "examples": self.examples.as_data(),
            "modules": self.modules,
        }
        # By number: a name may hold anything, and np.savez has an argument of its own names.
        arrays: dict[str, Any] = {f"sum{i}": array for i, array in enumerate(self.sums.values())}
        file = io.BytesIO()
        np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Tally":
        """Return the tally that `to_bytes` made bytes of.

        Raises:
            ValueError: these are no such bytes, or damaged, or of a later version.
        """
        return cls._read(data, "the tally")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tally":
        """Return the tally of a file.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is no tally, or damaged, or of a later version.
        """
        return cls._read(Path(path).read_bytes(), str(path))

    @classmethod
    def _read(cls, data: bytes, name: str) -> "Tally":
        damaged = f"{name} is no tally, or damaged"
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as archive:
                about = _facts(archive)
                if about["version"] <= VERSION:
                    return cls._made(about, archive)
        except _DAMAGE as error:
            raise ValueError(f"{damaged} ({error}): remove it, and count its part again") from error
        raise ValueError(
            f"{name} has version {about['version']}, this Regard reads up to {VERSION}: "
            "install a later Regard, or count its part again"
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
        raise ValueError(
            f"what is added to {name!r} must have {so_far} axes, got {added}: "
            "give sums of different kinds different names"
        )


def _grown(array: NDArray[Any], shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return an array with zeros after its end, so that each axis is at least as long as asked."""
    sizes = tuple(max(pair) for pair in zip(array.shape, shape, strict=True))
    if sizes == array.shape and dtype == array.dtype:
        return array
    larger = np.zeros(sizes, dtype)
    larger[tuple(slice(size) for size in array.shape)] = array
    return larger


def _facts(archive: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return what an archive says of itself.

    Raises:
        ValueError: it is none of a tally.
    """
    about = json.loads(str(archive["about"]))
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise ValueError("it does not call itself one")
    return about
