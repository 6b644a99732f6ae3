"""Whether a file is the one that was meant."""

import hashlib
from pathlib import Path


def check_sha256(path: Path, sha256: str) -> None:
    """Raise ValueError unless a file has this sha256, in hexadecimal."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(f"sha256 of {path.name} must be {sha256}, got {found}")
