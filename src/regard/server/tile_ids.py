"""Names of heads, tilesets and lines in URLs."""

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

HeadNumber: TypeAlias = int | Literal["mean"]
PoolName: TypeAlias = Literal["mean", "max"]
CellName: TypeAlias = PoolName | Literal["effect"]
"""What a cell of a map shows."""

LineName: TypeAlias = Literal["received", "entropy"]

POOLS: tuple[PoolName, ...] = ("mean", "max")
CELLS: tuple[CellName, ...] = (*POOLS, "effect")
LINES: tuple[LineName, ...] = ("received", "entropy")

ALL = "all"
"""The name of the mean over all heads of all calls."""

_NUMBER = r"(?:0|[1-9][0-9]{0,5})"
_HEAD = rf"c({_NUMBER})-h({_NUMBER}|mean)"
DIGEST_PATTERN = "^[0-9a-f]{16}$"
HEAD_PATTERN = f"^{_HEAD}$"
ROWS_PATTERN = f"^(?:{_HEAD}|{ALL})$"
TILESET_PATTERN = f"^(?:{_HEAD}|{ALL})-(mean|max|effect)$"
LINE_PATTERN = f"^{_HEAD}-(received|entropy)-(mean|max)$"


@dataclass(frozen=True)
class HeadName:
    """A head of a call, or the mean of all heads of a call.

    >>> str(HeadName(3, "mean"))
    'c3-hmean'
    """

    call: int
    head: HeadNumber

    def __str__(self) -> str:
        return f"c{self.call}-h{self.head}"

    @classmethod
    def parse(cls, name: str) -> "HeadName":
        """Parse a name.

        Raises:
            ValueError: the name is invalid.
        """
        found = _matched(HEAD_PATTERN, name, "a head, as c3-h5 or c3-hmean")
        return cls(int(found[1]), _head(found[2]))


def name_of(head: HeadName | None) -> str:
    """Return the name of a head, or of the mean over all heads (None)."""
    return ALL if head is None else str(head)


@dataclass(frozen=True)
class TilesetName:
    """A map of a head, of the mean of a call, or of the mean over all heads (None).

    >>> str(TilesetName(HeadName(3, 5), "max")), str(TilesetName(None, "mean"))
    ('c3-h5-max', 'all-mean')
    """

    of: HeadName | None
    pool: CellName

    def __str__(self) -> str:
        return f"{name_of(self.of)}-{self.pool}"

    @classmethod
    def parse(cls, name: str) -> "TilesetName":
        """Parse a name.

        Raises:
            ValueError: the name is invalid.
        """
        found = _matched(TILESET_PATTERN, name, "a tileset, as c3-h5-mean or all-max")
        of = None if found[1] is None else HeadName(int(found[1]), _head(found[2]))
        return cls(of, "effect" if found[3] == "effect" else _pool(found[3]))


@dataclass(frozen=True)
class LineSetName:
    """A line along an axis of the map of a head.

    >>> str(LineSetName(HeadName(3, 5), "received", "max"))
    'c3-h5-received-max'
    """

    of: HeadName
    line: LineName
    pool: PoolName

    def __str__(self) -> str:
        return f"{self.of}-{self.line}-{self.pool}"

    @classmethod
    def parse(cls, name: str) -> "LineSetName":
        """Parse a name.

        Raises:
            ValueError: the name is invalid.
        """
        found = _matched(LINE_PATTERN, name, "a line, as c3-h5-received-mean")
        line: LineName = "received" if found[3] == "received" else "entropy"
        return cls(HeadName(int(found[1]), _head(found[2])), line, _pool(found[4]))


def _matched(pattern: str, name: str, what: str) -> re.Match[str]:
    found = re.fullmatch(pattern, name)
    if found is None:
        raise ValueError(f"the name must be of {what}, got {name[:80]!r}")
    return found


def _head(name: str) -> HeadNumber:
    return "mean" if name == "mean" else int(name)


def _pool(name: str) -> PoolName:
    return "max" if name == "max" else "mean"
