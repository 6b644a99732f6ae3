"""Files that are there as a whole or not at all."""

import os
import uuid
from pathlib import Path

PARTIAL = ".partial"
"""How a file that is being written ends, and one whose writer was killed."""


def keep(path: Path, data: bytes) -> None:
    """Write a file that is there as a whole or not at all, and outlives a power cut."""
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}{PARTIAL}")
    try:
        with partial.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make sure that a new name in a folder outlives a power cut, where folders can be opened."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
